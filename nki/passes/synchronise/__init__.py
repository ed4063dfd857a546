"""Who waits for whom: semaphores."""
