"""Steps become the streams of a program."""
