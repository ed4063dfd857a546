"""Who waits for whom: semaphores.

Semaphores are counting channels: one for each loop depth, producer stream and consumer engine. A
wait takes its amount off. In a loop, waits for an iteration before are primed by the producer ahead
of the loop and the rest is taken behind it, so all counts are relative to the iteration and no trip
count needs to be known. One walk with vector clocks (`waits`) leaves the transitive reduction: of a
straight body once, of a loop's until its waits repeat. Loops that are alike are walked through
once.
"""
