"""The event loop of the timing model: one function over columns.

It runs as plain Python on lists, and compiled by numba on arrays where a program is long. Streams,
semaphores, queues and instructions are numbers here, counted over all cores.
`simulator.timing.layout` makes the columns, `simulator.timing.model` reads what comes out.

A stream runs until it needs tokens of a semaphore that nobody has produced yet; it knows its own
time and needs no global clock. A transfer is different: transfers of all queues share the DMA
engines, so a transfer is served only once no stream can go on. Of those waiting, the one that is
ready first comes next, and nothing that a stream does later can be ready before it.

Times of a stream: its sequencer is at `now`, its data path is free at `free`, and everything it has
issued is complete at `last`. The sequencer goes on as soon as the instruction before has started.
So loops, branches, waits and DMA triggers run beside the data path (assumed; the documents say that
triggers overlap with earlier compute). Products in parts of the tensor engine's array run beside
each other where they share no block of 32 x 32 elements (SDK nki.isa.nc_matmul, "Tiling mode"); the
next one is issued after the minimum interval (assumed). An instruction holds the data path for its
interval and completes later (SDK nki/deep-dives/nki_perf_guide.rst); completions are in order.

What each executed instruction and transfer waited for last is kept as a node, with the time until
which that held it up: the graph in which `simulator.timing.critical` walks the critical path.
"""

from __future__ import annotations

from typing import Any

from isa.columns.jit import jit_when_long

COMPUTE, COMPUTE_EXTRA, MULTIPLY, LOAD_TILE, DMA, CONTROL, REGISTER = range(7)
MEMORY_REGISTER, LOOP_BEGIN, LOOP_END, BRANCH, BARRIER, DRAIN, HALT = range(7, 14)

FRESH, WAITING, DRAINING, MEETING = range(4)
"""How far a stream is with its next instruction."""


BLOCKS = 16
"""Blocks of the tensor engine's array (`isa.array_tiles`)."""

TIMES = 5
"""Times that are kept of each node, see `simulator.timing.critical.RunNodes`."""

N_MODES, DYNAMIC, STATIC = 4, 0, 3
"""Who may generate the descriptors of transfers: values of `isa.enums.DgeMode`. None are of unknown
origin, so that the first one stands for all that are generated during the run."""

LONG = 200_000
"""Executed instructions from which on the loop is compiled. Python takes 2 to 4 us each, compiled
code 0.2; loading what is compiled takes 1 s, compiling it, once a machine, some 10."""


@jit_when_long(worth=LONG)
def advance(
    instructions: Any, semaphores: Any, templates: Any, sequence: Any, cores: Any, numbers: Any,
    state: Any, transfers: Any, record: Any,
) -> Any:  # fmt: skip
    """Run all streams to their ends, or until each of them waits.

        while True:
            if a stream can go on:
                if its next instruction needs tokens of an empty semaphore: park it there; continue
                ready = the latest of its `now` and the times of the tokens that it takes
                COMPUTE...: start at max(ready, free, operands, ports); set now, free, last
                DMA:        now += the time of triggering; push the transfer into the heap
                BARRIER:    park it until all have come; go on at the latest arrival
                DRAIN:      park it until its queue has no open transfer
                others:     now = ready + interval
                post the tokens of its updates
            elif the heap has transfers:
                serve the one that is ready first on the DMA engines; post its tokens when complete
            else: return
            posting tokens, and the last transfer of a queue, make parked streams runnable

    The arguments are groups of columns, unpacked by name in the first lines. By what indexes them:

    - `instructions`, by instruction: template (`of`), kind, list of semaphores, ports; `results`
      and `firsts` are the earlier instructions whose last, or first, result it needs.
    - `semaphores`, by list: waits from `wait_at[n]` to `wait_at[n + 1]`, updates likewise.
    - `templates`, by template: times in ns (`interval`: until the next may start, `completion`:
      until the result is visible), queue, blocks of the array (`parts`; 0: all) and which of its
      stream's parts they are (`lanes`), and from `work_at[n]` on the work of each DMA engine.
    - `sequence`: `code` has the instructions that all streams execute, stream by stream, each up to
      `ends[stream]`; `shares` the part of its rows that each dynamic transfer moves.
    - `cores`, by stream: its core, its tracks in the trace, pairs of engines that share ports.
    - `numbers`: single figures of the target, and options.
    - `state`, by stream, semaphore, queue, core or instruction. `at` is a place in `code`;
      `token_head` to `token_tail` are the tokens of a semaphore that are left (`token_when`,
      `token_amount`); `..._node` is the node that set the time of the same name.
    - `transfers`: a table of those that wait, and a binary heap by time.
    - `record`: nodes of the critical path, spans of the trace, periods of activity.

    Returns the number of nodes, spans and periods; when the last transfer was complete; the end of
    the path (time, node); and the stream that came further than `limit` (-1: none).
    """
    of, kinds, lists_of, masks, noted, result_at, results, first_at, firsts = instructions
    wait_at, wait_semaphore, wait_amount, update_at, update_semaphore, update_amount = semaphores
    (tables, on_engine, queues, rows, dynamic, meetings, intervals, completions, drains,
     dispatches, evens, settles, tails, engine_ns, modes, parts, lanes, work_at,
     work_engine, work_ns) = templates  # fmt: skip
    code, ends, shares = sequence
    (core_of, data_track, sequencer_track, load_track, part_track, mine_at, mine, other_at, other,
     meeting_size, queue_track, first_semaphore) = cores  # fmt: skip
    (signal, table_ns, tables_kept, window, fraction, threshold, engines, limit, with_path,
     with_spans, n_tables, n_semaphores, apart, loads_hidden, issue) = numbers  # fmt: skip
    (at, now, free, last, active, opened, stage, wait_next, wait_left, ready_of, origin_of,
     cause_of, met_of, met_node_of, arrived_of, held_of, held_node_of, tile_ready, swapped, exposed,
     array_until, array_node, block_until, block_node, beside,
     share_at, waited, slowed, loaded_tables, table_now, limited, limit_until, limit_busy,
     limit_spill, lost, dones, first_dones, token_head, token_tail, token_when, token_amount,
     token_node, semaphore_stream, queue_done, queue_shown, queue_open, queue_stream,
     dma_free, dma_level, covered, dma_active, dma_opened, dma_work, mode_covered, mode_active,
     transfer_ns, work_by_instruction, table_loads,
     barrier_ns, port_head, port_tail, port_from, port_until, port_mask, meeting_count,
     meeting_when, meeting_node, meeting_stream, runnable, now_node, free_node, last_at,
     last_node, tile_at, tile_node, swapped_at, swapped_node, executed_node, dma_node,
     queue_at, queue_node, path_now) = state  # fmt: skip
    item_stream, item_at, item_node, item_share, heap_ready, heap_item = transfers
    links, moments, span_track, span_start, span_end, span_at, period_from, period_until = record

    n_streams = len(at)
    slots = n_streams + 1
    run_head, run_tail = 0, 0
    for stream in range(n_streams):
        runnable[run_tail] = stream
        run_tail += 1
    n_nodes = n_spans = n_periods = n_items = n_heap = 0
    served = end_at = 0.0
    end_node = over = -1
    stream = -1
    while True:
        post_from = post_to = 0
        post_when = 0.0
        post_node = -1
        if stream < 0 and run_head != run_tail:
            stream = runnable[run_head]
            run_head = (run_head + 1) % slots
        if stream >= 0:
            if at[stream] >= ends[stream]:
                if with_path:
                    for moment, node in (
                        (path_now[stream], now_node[stream]),
                        (free[stream], free_node[stream]),
                        (last_at[stream], last_node[stream]),
                    ):
                        if moment > end_at or (moment == end_at and node > end_node):
                            end_at, end_node = moment, node
                stream = -1
                continue
            here = at[stream]
            pc = code[here]
            template, listed, kind = of[pc], lists_of[pc], kinds[pc]
            interval = intervals[template]
            # Take tokens of the semaphores that the instruction waits for.
            if stage[stream] <= WAITING:
                wait = wait_at[listed]
                ready = now[stream]
                origin = cause = -1
                left = 0
                if stage[stream] == WAITING:
                    wait, left = wait_next[stream], wait_left[stream]
                    ready, origin, cause = ready_of[stream], origin_of[stream], cause_of[stream]
                blocked = False
                while wait < wait_at[listed + 1]:
                    semaphore = wait_semaphore[wait]
                    if left == 0:
                        left = wait_amount[wait]
                    head = token_head[semaphore]
                    if head == token_tail[semaphore]:
                        semaphore_stream[semaphore] = stream
                        blocked = True
                        break
                    if token_when[head] > ready:
                        ready, origin = token_when[head], token_node[head]
                        cause = semaphore
                    units = token_amount[head]
                    if units > left:
                        token_amount[head] = units - left
                        left = 0
                        wait += 1
                    else:
                        token_head[semaphore] = head + 1
                        left -= units
                        if left == 0:
                            wait += 1
                if blocked:
                    stage[stream] = WAITING
                    wait_next[stream], wait_left[stream] = wait, left
                    ready_of[stream], origin_of[stream], cause_of[stream] = ready, origin, cause
                    stream = -1
                    continue
                if cause >= 0 and ready > free[stream]:
                    since = now[stream] if now[stream] > free[stream] else free[stream]
                    waited[stream * n_semaphores + cause - first_semaphore[core_of[stream]]] += (
                        ready - since
                    )
                ready_of[stream] = ready
                met_of[stream] = ready if origin >= 0 else 0.0
                met_node_of[stream] = origin
            ready = ready_of[stream]
            met, met_node = met_of[stream], met_node_of[stream]
            updates = update_at[listed + 1] - update_at[listed]
            if kind <= LOAD_TILE:
                loaded = array_free = 0.0
                part, array_before = 0, -1
                if kind in (MULTIPLY, LOAD_TILE):
                    # When the part of the array is free, and what occupies it until then.
                    part = parts[template]
                    array_free, array_before = array_until[stream], array_node[stream]
                    if part:
                        array_free, array_before = 0.0, -1
                        for block in range(BLOCKS * stream, BLOCKS * stream + BLOCKS):
                            if part >> block % BLOCKS & 1 and block_until[block] > array_free:
                                array_free, array_before = block_until[block], block_node[block]
                if kind == COMPUTE:
                    start = ready if ready > free[stream] else free[stream]
                    settled = start
                    until = start + interval
                    done = start + completions[template]
                elif kind == MULTIPLY:
                    start = ready if ready > free[stream] else free[stream]
                    settled = start = max(start, tile_ready[stream], array_free)
                    if swapped[stream] < 0.0:
                        swapped[stream] = start
                    length = interval
                    if window > 0.0:
                        # The TensorE limit of gen3 and gen4 (SDK tools/neuron-explorer/
                        # overview-summary-page.rst): the engine starts at a fraction of its rate.
                        # After a window in which it was busier than the threshold it runs at full
                        # rate; after one in which it was not, the limit is back.
                        if start >= limit_until[stream]:
                            if start >= limit_until[stream] + window:
                                limited[stream] = 1
                                limit_until[stream] = start + window
                                limit_busy[stream] = 0.0
                            else:
                                limited[stream] = 1 if limit_busy[stream] < threshold else 0
                                limit_until[stream] += window
                                limit_busy[stream] = min(limit_spill[stream], window)
                            limit_spill[stream] = 0.0
                        if limited[stream]:
                            length = interval / fraction
                            lost[stream] += length - interval
                        alone = start + length - max(start, array_until[stream])
                        beyond = start + length - limit_until[stream]
                        if beyond > 0.0:
                            limit_busy[stream] += max(0.0, alone - beyond)
                            limit_spill[stream] = max(beyond, limit_spill[stream])
                        else:
                            limit_busy[stream] += max(0.0, alone)
                    until = start + length
                    if array_until[stream] > start:
                        beside[stream] += min(until, array_until[stream]) - start
                    done = until + completions[template] - interval
                    if length > interval:
                        slowed[pc] += length - interval
                elif kind == LOAD_TILE:
                    # The tile behind the one in use is free from when that one was taken into use.
                    start = ready
                    if not loads_hidden:
                        start = max(start, free[stream], array_free)
                    settled = start = max(start, tile_ready[stream], swapped[stream])
                    until = start + interval
                    tile_ready[stream] = until
                    swapped[stream] = -1.0
                    open_from = max(start, free[stream], array_until[stream])
                    if until > open_from:
                        exposed[stream] += until - open_from
                    done = start + completions[template]
                else:
                    start = ready if ready > free[stream] else free[stream]
                    table = tables[template]
                    if table >= 0 and not loaded_tables[stream * n_tables + table]:
                        # The load has no semaphores: it runs ahead of the instruction's waits.
                        if not tables_kept and table_now[stream] >= 0:
                            loaded_tables[stream * n_tables + table_now[stream]] = 0
                        loaded_tables[stream * n_tables + table] = 1
                        table_now[stream] = table
                        since = now[stream] if now[stream] > free[stream] else free[stream]
                        loaded = since + table_ns
                        table_loads[core_of[stream]] += 1
                        if with_spans:
                            span_track[n_spans], span_at[n_spans] = data_track[stream], -1
                            span_start[n_spans], span_end[n_spans] = since, loaded
                            n_spans += 1
                        if loaded > last[stream]:
                            active[stream] += min(loaded - last[stream], table_ns)
                            if with_path and since > last[stream]:
                                period_from[n_periods] = opened[stream]
                                period_until[n_periods] = last[stream]
                                opened[stream] = since
                                n_periods += 1
                            last[stream] = loaded
                        if loaded > start:
                            start = loaded
                    for index in range(result_at[pc], result_at[pc + 1]):
                        if dones[results[index]] > start:
                            start = dones[results[index]]
                    for index in range(first_at[pc], first_at[pc + 1]):
                        if first_dones[firsts[index]] > start:
                            start = first_dones[firsts[index]]
                    settled = start
                    mask = masks[pc]
                    if mask:
                        # The first time from `start` on at which the ports are free.
                        moved = True
                        while moved:
                            moved = False
                            for index in range(other_at[stream], other_at[stream + 1]):
                                pair = other[index]
                                while (
                                    port_head[pair] < port_tail[pair]
                                    and port_until[port_head[pair]] <= start
                                ):
                                    port_head[pair] += 1
                                for port in range(port_head[pair], port_tail[pair]):
                                    if port_from[port] >= start + interval:
                                        break
                                    if port_mask[port] & mask and port_until[port] > start:
                                        start = port_until[port]
                                        moved = True
                        for index in range(mine_at[stream], mine_at[stream + 1]):
                            port = port_tail[mine[index]]
                            port_from[port], port_until[port] = start, start + interval
                            port_mask[port] = mask
                            port_tail[mine[index]] = port + 1
                    until = start + interval
                    done = start + completions[template]
                if with_path:
                    idle = path_now[stream]
                    idle_node = now_node[stream]
                    if not idle > free[stream]:
                        idle, idle_node = free[stream], free_node[stream]
                    if kind == LOAD_TILE:
                        begin, before = tile_at[stream], tile_node[stream]
                        if swapped_at[stream] > begin:
                            begin, before = swapped_at[stream], swapped_node[stream]
                        if not loads_hidden and free[stream] > begin:
                            begin, before = free[stream], free_node[stream]
                        if not loads_hidden and array_free > begin:
                            begin, before = array_free, array_before
                    else:
                        begin, before = free[stream], free_node[stream]
                        if array_free > begin:
                            begin, before = array_free, array_before
                    if met > begin:
                        begin, before = met, met_node
                    if path_now[stream] > begin:
                        begin, before = path_now[stream], now_node[stream]
                    if kind == MULTIPLY and tile_at[stream] > begin:
                        begin, before = tile_at[stream], tile_node[stream]
                    if kind == COMPUTE_EXTRA:
                        for index in range(result_at[pc], result_at[pc + 1]):
                            if dones[results[index]] > begin:
                                begin = dones[results[index]]
                                before = executed_node[results[index]]
                        for index in range(first_at[pc], first_at[pc + 1]):
                            if first_dones[firsts[index]] > begin:
                                begin = first_dones[firsts[index]]
                                before = executed_node[firsts[index]]
                        if loaded > begin:
                            begin, before = idle, idle_node
                    node = n_nodes
                    n_nodes += 1
                    links[2 * node], links[2 * node + 1] = 2 * pc, before
                    moment = TIMES * node
                    moments[moment], moments[moment + 1] = begin, settled
                    moments[moment + 2], moments[moment + 3] = start, until
                    moments[moment + 4] = idle
                    path_now[stream], now_node[stream] = start, node
                    if kind == LOAD_TILE:
                        tile_at[stream], tile_node[stream] = until, node
                        swapped_at[stream], swapped_node[stream] = 0.0, -1
                    else:
                        if kind == MULTIPLY and swapped_node[stream] < 0:
                            swapped_at[stream], swapped_node[stream] = start, node
                        free_node[stream] = node
                        executed_node[pc] = node
                    if done > last_at[stream]:
                        last_at[stream], last_node[stream] = done, node
                now[stream] = start
                if with_spans:
                    track = load_track[stream] if kind == LOAD_TILE else data_track[stream]
                    if kind == MULTIPLY and part:
                        track = part_track[stream] + lanes[template]
                    span_track[n_spans], span_at[n_spans] = track, here
                    span_start[n_spans], span_end[n_spans] = start, until
                    n_spans += 1
                if kind != LOAD_TILE:
                    free[stream] = until
                if kind == MULTIPLY:
                    if part:
                        free[stream] = start + issue
                        for block in range(BLOCKS * stream, BLOCKS * stream + BLOCKS):
                            if part >> block % BLOCKS & 1:
                                block_until[block], block_node[block] = until, free_node[stream]
                    if not until < array_until[stream]:
                        array_until[stream], array_node[stream] = until, free_node[stream]
                if noted[pc]:
                    dones[pc] = done
                    first_dones[pc] = start + drains[template]
                if done > last[stream]:
                    active[stream] += done - (start if start > last[stream] else last[stream])
                    if with_path and start > last[stream]:
                        period_from[n_periods] = opened[stream]
                        period_until[n_periods] = last[stream]
                        opened[stream] = start
                        n_periods += 1
                    last[stream] = done
                if updates:
                    post_when, post_node = last[stream] + signal, last_node[stream]
            elif kind == DMA:
                held, held_node = 0.0, -1
                for index in range(result_at[pc], result_at[pc + 1]):
                    if dones[results[index]] > ready:
                        ready = dones[results[index]]
                        held, held_node = ready, executed_node[results[index]]
                begin, before = path_now[stream], now_node[stream]
                idle = begin
                if on_engine[template]:
                    if free[stream] > ready:
                        ready = free[stream]
                    if free[stream] > begin:
                        begin, before = free[stream], free_node[stream]
                        idle = begin
                issued = ready + interval
                node = -1
                if with_path:
                    if met > begin:
                        begin, before = met, met_node
                    if held > begin:
                        begin, before = held, held_node
                    node = n_nodes
                    n_nodes += 1
                    links[2 * node], links[2 * node + 1] = 2 * pc, before
                    moment = TIMES * node
                    moments[moment], moments[moment + 1] = begin, begin
                    moments[moment + 2], moments[moment + 3] = begin, issued
                    moments[moment + 4] = idle
                    path_now[stream], now_node[stream] = issued, node
                    if on_engine[template]:
                        free_node[stream] = node
                now[stream] = ready if on_engine[template] else issued
                if on_engine[template]:
                    free[stream] = issued
                if with_spans:
                    track = data_track[stream] if on_engine[template] else sequencer_track[stream]
                    span_track[n_spans], span_at[n_spans] = track, here
                    span_start[n_spans], span_end[n_spans] = ready, issued
                    n_spans += 1
                share = 1.0
                if dynamic[template]:
                    share = shares[share_at[stream]]
                    share_at[stream] += 1
                queue_open[queues[template]] += 1
                item = n_items
                n_items += 1
                item_stream[item], item_at[item] = stream, here
                item_node[item], item_share[item] = node, share
                # Into the heap, by the time at which the queue can start it, then by order.
                when = issued + dispatches[template]
                child = n_heap
                n_heap += 1
                while child > 0:
                    parent = (child - 1) // 2
                    if heap_ready[parent] <= when:
                        break
                    heap_ready[child], heap_item[child] = heap_ready[parent], heap_item[parent]
                    child = parent
                heap_ready[child], heap_item[child] = when, item
                updates = 0
            else:
                held, held_node = 0.0, -1
                if kind == MEMORY_REGISTER:
                    if last[stream] > ready:
                        ready = last[stream]
                    held, held_node = last_at[stream], last_node[stream]
                elif kind == BARRIER:
                    meeting = meetings[template]
                    if stage[stream] != MEETING:
                        arrived = ready if ready > last[stream] else last[stream]
                        node = -1
                        if with_path:
                            moment, node = last_at[stream], last_node[stream]
                            if path_now[stream] > moment:
                                moment, node = path_now[stream], now_node[stream]
                            if met > moment or (met == moment and met_node > node):
                                node = met_node
                        party = meeting * n_streams
                        count = meeting_count[meeting]
                        better = arrived == meeting_when[meeting] and node > meeting_node[meeting]
                        if count == 0 or arrived > meeting_when[meeting] or better:
                            meeting_when[meeting], meeting_node[meeting] = arrived, node
                        arrived_of[stream] = arrived
                        stage[stream] = MEETING
                        meeting_stream[party + count] = stream
                        meeting_count[meeting] = count + 1
                        if count + 1 < meeting_size[meeting]:
                            stream = -1
                            continue
                        for index in range(count + 1):
                            waiter = meeting_stream[party + index]
                            held_of[waiter] = meeting_when[meeting]
                            held_node_of[waiter] = meeting_node[meeting]
                            if index < count:
                                runnable[run_tail] = waiter
                                run_tail = (run_tail + 1) % slots
                        meeting_count[meeting] = 0
                    held, held_node = held_of[stream], held_node_of[stream]
                    ready = held
                    barrier_ns[core_of[stream]] += held - arrived_of[stream] + interval
                elif kind == DRAIN:
                    queue = queues[template]
                    if queue_open[queue]:
                        queue_stream[queue] = stream
                        stage[stream] = DRAINING
                        stream = -1
                        continue
                    if queue_done[queue] > ready:
                        ready = queue_done[queue]
                    held, held_node = queue_at[queue], queue_node[queue]
                leaves = ready + interval
                if with_path:
                    begin, before = path_now[stream], now_node[stream]
                    idle = begin
                    if met > begin:
                        begin, before = met, met_node
                    if held > begin:
                        begin, before = held, held_node
                    node = n_nodes
                    n_nodes += 1
                    links[2 * node], links[2 * node + 1] = 2 * pc, before
                    moment = TIMES * node
                    moments[moment], moments[moment + 1] = begin, begin
                    moments[moment + 2], moments[moment + 3] = begin, leaves
                    moments[moment + 4] = idle
                    path_now[stream], now_node[stream] = leaves, node
                now[stream] = leaves
                if with_spans and interval > 0.0:
                    span_track[n_spans], span_at[n_spans] = sequencer_track[stream], here
                    span_start[n_spans], span_end[n_spans] = ready, leaves
                    n_spans += 1
                if here + 1 < ends[stream] and code[here + 1] <= pc and leaves > limit:
                    over = stream
                    break
                if updates:
                    post_when = (leaves if leaves > last[stream] else last[stream]) + signal
                    if with_path:
                        post_node = last_node[stream]
                        if path_now[stream] > last_at[stream]:
                            post_node = now_node[stream]
            stage[stream] = FRESH
            at[stream] = here + 1
            if updates:
                post_from, post_to = update_at[listed], update_at[listed + 1]
        elif n_heap:
            # Let the DMA engines do a transfer, each after what it has taken on before.
            ready, item = heap_ready[0], heap_item[0]
            n_heap -= 1
            when, moved_item = heap_ready[n_heap], heap_item[n_heap]
            parent = 0
            while True:
                child = 2 * parent + 1
                if child >= n_heap:
                    break
                right = child + 1
                if right < n_heap and (
                    heap_ready[right] < heap_ready[child]
                    or (
                        heap_ready[right] == heap_ready[child]
                        and heap_item[right] < heap_item[child]
                    )
                ):
                    child = right
                if when < heap_ready[child] or (
                    when == heap_ready[child] and moved_item < heap_item[child]
                ):
                    break
                heap_ready[parent], heap_item[parent] = heap_ready[child], heap_item[child]
                parent = child
            heap_ready[parent], heap_item[parent] = when, moved_item
            owner, here, share = item_stream[item], item_at[item], item_share[item]
            pc = code[here]
            template, listed = of[pc], lists_of[pc]
            core, queue, row = core_of[owner], queues[template], rows[template]
            begin, before = 0.0, -1
            even = evens[template] > 0.0 and dma_level[core] != 0
            if even:
                level = dma_free[row]
                begin, before = level, dma_node[row]
                first = ready if ready > level else level
                finish = first + evens[template] * share
                for engine in range(engines):
                    dma_free[row + engine] = finish
            else:
                first, finish = 1e300, ready
                longest = -1.0
                for index in range(work_at[template], work_at[template + 1]):
                    engine = row + work_engine[index]
                    start = dma_free[engine] if dma_free[engine] > ready else ready
                    until = start + work_ns[index] * share
                    if until >= longest:
                        longest = until
                        begin, before = dma_free[engine], dma_node[engine]
                    dma_free[engine] = until
                    if start < first:
                        first = start
                    if until > finish:
                        finish = until
                if first > finish:
                    first = finish
                dma_level[core] = 0 if apart else 1
                for engine in range(engines):
                    if dma_free[row + engine] != dma_free[row]:
                        dma_level[core] = 0
            written = finish + settles[template]
            if written > covered[core]:
                dma_active[core] += written - (first if first > covered[core] else covered[core])
                if with_path and first > covered[core]:
                    period_from[n_periods], period_until[n_periods] = (
                        dma_opened[core],
                        covered[core],
                    )
                    dma_opened[core] = first
                    n_periods += 1
                covered[core] = written
            for mode in (modes[template], DYNAMIC):
                at_mode = N_MODES * core + mode
                if written > mode_covered[at_mode] and (mode or modes[template] != STATIC):
                    since = first if first > mode_covered[at_mode] else mode_covered[at_mode]
                    mode_active[at_mode] += written - since
                    mode_covered[at_mode] = written
            transfer_ns[core] += written - first
            dma_work[core] += engine_ns[template] * share
            work_by_instruction[pc] += engine_ns[template] * share
            complete = finish + tails[template]
            node = item_node[item]
            if with_path:
                start = begin
                if begin <= ready:
                    start, begin, before = ready, moments[TIMES * node + 3], node
                node = n_nodes
                n_nodes += 1
                links[2 * node], links[2 * node + 1] = 2 * pc + 1, before
                moment = TIMES * node
                moments[moment], moments[moment + 1] = begin, start
                moments[moment + 2], moments[moment + 3] = start, finish
                moments[moment + 4] = ready
                if even:
                    for engine in range(engines):
                        dma_node[row + engine] = node
                else:
                    for index in range(work_at[template], work_at[template + 1]):
                        dma_node[row + work_engine[index]] = node
                if complete > queue_at[queue]:
                    queue_at[queue], queue_node[queue] = complete, node
                node = queue_node[queue]
                if queue_at[queue] > end_at or (queue_at[queue] == end_at and node > end_node):
                    end_at, end_node = queue_at[queue], node
            if complete > queue_done[queue]:
                queue_done[queue] = complete
            if queue_done[queue] > served:
                served = queue_done[queue]
            if with_spans:
                shown = queue_shown[queue]
                ended = finish if finish > shown else shown
                queue_shown[queue] = ended
                span_track[n_spans], span_at[n_spans] = queue_track[queue], here
                span_start[n_spans] = first if first > shown else shown
                span_end[n_spans] = ended
                n_spans += 1
            post_from, post_to = update_at[listed], update_at[listed + 1]
            post_when, post_node = queue_done[queue], node
            queue_open[queue] -= 1
        else:
            break
        # Add tokens that are there from `post_when` on, and let those who wait for them go on.
        for index in range(post_from, post_to):
            semaphore = update_semaphore[index]
            tail = token_tail[semaphore]
            token_when[tail], token_node[tail] = post_when, post_node
            token_amount[tail] = update_amount[index]
            token_tail[semaphore] = tail + 1
            waiter = semaphore_stream[semaphore]
            if waiter >= 0:
                semaphore_stream[semaphore] = -1
                runnable[run_tail] = waiter
                run_tail = (run_tail + 1) % slots
        if stream < 0:
            waiter = queue_stream[queue]
            if waiter >= 0 and not queue_open[queue]:
                queue_stream[queue] = -1
                runnable[run_tail] = waiter
                run_tail = (run_tail + 1) % slots
    return n_nodes, n_spans, n_periods, served, end_at, end_node, over
