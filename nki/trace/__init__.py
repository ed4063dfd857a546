"""Running a kernel function to build tile IR."""
