"""Steps of a body as columns: what they touch, and which must come before which."""
