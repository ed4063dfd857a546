"""Who waits for whom: semaphores.

Why a step must follow another is found before this, in `nki.passes.analysis.dependences`.

Semaphores are counting channels: one for each loop depth, producer stream and consumer engine. A
wait subtracts its amount. A wait in a loop may be for the iteration before. Then the producer
signals once ahead of the loop (a prime), and the consumer takes the signal left over behind the
loop. So all counts are relative to the iteration, and no trip count needs to be known.

One walk with vector clocks (`waits`) keeps only waits that no other wait implies (the transitive
reduction). A straight body is walked through once, a loop's until its waits repeat. Of loops that
are alike only one is walked through.
"""
