"""Checks of running and finished programs that real hardware cannot give."""
