"""Places for tensors: in arenas in HBM, and on chip, by live ranges in the order of the body."""
