-- Removes the first messages of a queue that a client may have, its own and anybody's, in the order of their numbers.
-- With p_lease_us, leases them for this time instead. Skips messages that other calls are taking. An empty answer means
-- that at some moment no other message was ready. If the queue's epoch is p_epoch, messages below the floors are not
-- looked at.
--
-- Returns at least one row. `first` and `first_nobodys`, the first ready message of each kind, bound the next floors;
-- they are read without a lock.
CREATE FUNCTION take(
    p_receiver integer, p_queue integer, p_count integer, p_bytes bigint, p_lease_us bigint,
    p_floor bigint, p_floor_nobodys bigint, p_epoch bigint)
RETURNS TABLE (
    problem integer, about integer, epoch bigint, first bigint, first_nobodys bigint,
    id bigint, sender integer, receiver integer, arrived_at timestamptz, attempt integer, content text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    there boolean;
    now_epoch bigint;
    head bigint;
    head_nobodys bigint;
    own bigint;
    nobodys bigint;
    whose integer;
    low bigint;
    high bigint;
    taken integer := 0;
    bytes bigint := 0;
    tids tid[];
    t record;
    ready refcursor;
    seen bigint[];
    passed bigint[];
    -- Sends with numbers up to this one began before the heads are read. A higher number may belong to a later send
    -- than a message of the other kind that the heads do not show.
    last bigint := coalesce(pg_sequence_last_value('knee_queue.message_id'), 0);
BEGIN
    -- One statement, so that epoch and heads are from one snapshot. With OFFSET 0, the queue is looked up once.
    SELECT p_receiver = 0 OR EXISTS (SELECT FROM knee_queue.client c WHERE c.id = p_receiver),
           e.epoch,
           (SELECT m.id FROM knee_queue.message m
            WHERE m.receiver = p_receiver AND m.queue = p_queue AND m.leased_until IS NULL
              AND m.id >= CASE e.epoch WHEN p_epoch THEN p_floor ELSE 0 END
            ORDER BY m.id LIMIT 1),
           (SELECT m.id FROM knee_queue.message m
            WHERE m.receiver = 0 AND m.queue = p_queue AND m.leased_until IS NULL
              AND m.id >= CASE e.epoch WHEN p_epoch THEN p_floor_nobodys ELSE 0 END
            ORDER BY m.id LIMIT 1)
    INTO there, now_epoch, head, head_nobodys
    FROM (SELECT (SELECT q.epoch FROM knee_queue.queue q WHERE q.id = p_queue) AS epoch OFFSET 0) e;
    IF NOT there THEN
        RETURN QUERY SELECT 1, p_receiver, 0::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
            NULL::integer, NULL::integer, NULL::timestamptz, NULL::integer, NULL::text;
        RETURN;
    ELSIF now_epoch IS NULL THEN
        RETURN QUERY SELECT 2, p_queue, 0::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
            NULL::integer, NULL::integer, NULL::timestamptz, NULL::integer, NULL::text;
        RETURN;
    END IF;
    last := greatest(last, head, head_nobodys);
    own := head;
    nobodys := CASE WHEN p_receiver <> 0 THEN head_nobodys END;
    -- The messages that were already seen to be ready.
    passed := ARRAY[head, head_nobodys];
    -- Merge own and anybody's messages by number. Lock only messages that are taken: other calls skip locked ones.
    WHILE taken < p_count AND (taken = 0 OR bytes < p_bytes) AND (own IS NOT NULL OR nobodys IS NOT NULL)
    LOOP
        IF nobodys IS NULL OR own < nobodys THEN
            whose := p_receiver; low := own; high := coalesce(nobodys, last + 1);
        ELSE
            whose := 0; low := nobodys; high := coalesce(own, last + 1);
        END IF;
        IF p_count = 1 THEN
            -- One statement costs less than two. Unlike the statements below, it does not see a message that was leased
            -- and put back after it began.
            IF p_lease_us IS NULL THEN
                RETURN QUERY DELETE FROM knee_queue.message m WHERE m.ctid = ANY (ARRAY(
                    SELECT h.ctid FROM knee_queue.message h
                    WHERE h.receiver = whose AND h.queue = p_queue AND h.leased_until IS NULL
                      AND h.id >= low AND h.id < high
                    ORDER BY h.id LIMIT 1 FOR UPDATE SKIP LOCKED))
                    RETURNING 0, NULL::integer, now_epoch, head, head_nobodys, m.id, m.sender,
                        m.receiver, m.arrived_at, m.attempts, m.content;
            ELSE
                RETURN QUERY UPDATE knee_queue.message m
                    SET leased_until = now() + p_lease_us * interval '1 microsecond',
                        attempts = m.attempts + 1
                    WHERE m.ctid = ANY (ARRAY(
                    SELECT h.ctid FROM knee_queue.message h
                    WHERE h.receiver = whose AND h.queue = p_queue AND h.leased_until IS NULL
                      AND h.id >= low AND h.id < high
                    ORDER BY h.id LIMIT 1 FOR UPDATE SKIP LOCKED))
                    RETURNING 0, NULL::integer, now_epoch, head, head_nobodys, m.id, m.sender,
                        m.receiver, m.arrived_at, m.attempts, m.content;
            END IF;
            IF FOUND THEN
                RETURN;
            END IF;
        END IF;
        -- Fetch one by one: the number of messages depends on their sizes.
        tids := '{}';
        OPEN ready NO SCROLL FOR SELECT m.ctid AS tid, octet_length(m.content) AS size
            FROM knee_queue.message m
            WHERE m.receiver = whose AND m.queue = p_queue AND m.leased_until IS NULL
              AND m.id >= low AND m.id < high
            ORDER BY m.id FOR UPDATE SKIP LOCKED;
        WHILE taken + cardinality(tids) < p_count
            AND (taken + cardinality(tids) = 0 OR bytes < p_bytes)
        LOOP
            FETCH ready INTO t;
            EXIT WHEN NOT FOUND;
            tids := tids || t.tid;
            bytes := bytes + t.size;
        END LOOP;
        CLOSE ready;
        IF cardinality(tids) > 0 THEN
            IF p_lease_us IS NULL THEN
                RETURN QUERY DELETE FROM knee_queue.message m WHERE m.ctid = ANY (tids)
                    RETURNING 0, NULL::integer, now_epoch, head, head_nobodys, m.id, m.sender,
                        m.receiver, m.arrived_at, m.attempts, m.content;
            ELSE
                RETURN QUERY UPDATE knee_queue.message m
                    SET leased_until = now() + p_lease_us * interval '1 microsecond',
                        attempts = m.attempts + 1
                    WHERE m.ctid = ANY (tids)
                    RETURNING 0, NULL::integer, now_epoch, head, head_nobodys, m.id, m.sender,
                        m.receiver, m.arrived_at, m.attempts, m.content;
            END IF;
            taken := taken + cardinality(tids);
        END IF;
        EXIT WHEN taken >= p_count;
        IF whose = p_receiver THEN
            own := (SELECT m.id FROM knee_queue.message m
                WHERE m.receiver = p_receiver AND m.queue = p_queue AND m.leased_until IS NULL
                  AND m.id > high AND m.id <= last ORDER BY m.id LIMIT 1);
        ELSE
            nobodys := (SELECT m.id FROM knee_queue.message m
                WHERE m.receiver = 0 AND m.queue = p_queue AND m.leased_until IS NULL
                  AND m.id > high AND m.id <= last ORDER BY m.id LIMIT 1);
        END IF;
        -- Other calls have taken the messages that this call saw. Since then, messages may have been sent, or put back
        -- below the floors in a later epoch. So look again. No message was ready once a look shows only messages that
        -- this call has skipped before.
        IF taken = 0 AND own IS NULL AND nobodys IS NULL THEN
            last := coalesce(pg_sequence_last_value('knee_queue.message_id'), 0);
            SELECT array_agg(s.id), min(s.id) FILTER (WHERE s.receiver = p_receiver),
                   min(s.id) FILTER (WHERE s.receiver <> p_receiver), greatest(last, max(s.id))
            INTO seen, own, nobodys, last
            FROM (
                (SELECT m.id, m.receiver FROM knee_queue.message m
                 WHERE m.receiver = p_receiver AND m.queue = p_queue AND m.leased_until IS NULL
                   AND m.id >= CASE (SELECT q.epoch FROM knee_queue.queue q WHERE q.id = p_queue)
                               WHEN p_epoch THEN p_floor ELSE 0 END
                 ORDER BY m.id LIMIT 100)
                UNION ALL
                (SELECT m.id, m.receiver FROM knee_queue.message m
                 WHERE m.receiver = 0 AND m.queue = p_queue AND m.leased_until IS NULL
                   AND m.id >= CASE (SELECT q.epoch FROM knee_queue.queue q WHERE q.id = p_queue)
                               WHEN p_epoch THEN p_floor_nobodys ELSE 0 END
                   AND p_receiver <> 0
                 ORDER BY m.id LIMIT 100)
            ) s;
            EXIT WHEN seen <@ passed;
            passed := seen;
        END IF;
    END LOOP;
    IF taken = 0 THEN
        RETURN QUERY SELECT 0, NULL::integer, now_epoch, head, head_nobodys, NULL::bigint,
            NULL::integer, NULL::integer, NULL::timestamptz, NULL::integer, NULL::text;
    END IF;
END $$;

-- Takes one message for each of several calls, which are counted from 1.
--
-- One statement serves two kinds of calls. The first kind removes its receiver's own messages while no message to
-- anybody is ready; the second finds no message. The other calls follow one by one.
CREATE FUNCTION take_each(
    p_receivers integer[], p_queues integer[], p_lease_us bigint[],
    p_floors bigint[], p_floors_nobodys bigint[], p_epochs bigint[])
RETURNS TABLE (
    call integer,
    problem integer, about integer, epoch bigint, first bigint, first_nobodys bigint,
    id bigint, sender integer, receiver integer, arrived_at timestamptz, attempt integer, content text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    served boolean[] := array_fill(false, ARRAY[cardinality(p_receivers)]);
BEGIN
    FOR call, problem, epoch, first, first_nobodys, id, sender, receiver, arrived_at, attempt, content IN
        WITH head AS MATERIALIZED (
            -- Epoch and heads are from one snapshot, as in take().
            SELECT e.n, e.whose, e.queue, e.low, e.epoch, o.id AS own,
                (SELECT m.id FROM knee_queue.message m
                 WHERE m.receiver = 0 AND m.queue = e.queue AND m.leased_until IS NULL
                   AND m.id >= CASE e.epoch WHEN e.asked_epoch THEN e.floor_nobodys ELSE 0 END
                 ORDER BY m.id LIMIT 1) AS nobodys,
                row_number() OVER (PARTITION BY e.whose, e.queue ORDER BY e.n) AS place
            FROM (
                SELECT u.n, u.whose, u.queue, u.floor_nobodys, u.asked_epoch, q.epoch,
                    CASE q.epoch WHEN u.asked_epoch THEN u.floor ELSE 0 END AS low
                FROM unnest(p_receivers, p_queues, p_lease_us, p_floors, p_floors_nobodys, p_epochs)
                     WITH ORDINALITY u (whose, queue, lease_us, floor, floor_nobodys, asked_epoch, n)
                CROSS JOIN LATERAL (
                    SELECT q.epoch FROM knee_queue.queue q WHERE q.id = u.queue OFFSET 0) q
                WHERE u.lease_us IS NULL AND u.whose <> 0
                  AND (SELECT true FROM knee_queue.client c WHERE c.id = u.whose)
            ) e
            LEFT JOIN LATERAL (SELECT m.id FROM knee_queue.message m
                WHERE m.receiver = e.whose AND m.queue = e.queue AND m.leased_until IS NULL
                  AND m.id >= e.low ORDER BY m.id LIMIT 1) o ON true
        ), removed AS (
            DELETE FROM knee_queue.message m WHERE m.ctid = ANY (ARRAY(
                SELECT r.ctid
                FROM (SELECT h.whose, h.queue, min(h.own) AS low, count(*) AS calls FROM head h
                      WHERE h.own IS NOT NULL AND h.nobodys IS NULL GROUP BY h.whose, h.queue) w
                CROSS JOIN LATERAL (SELECT m.ctid FROM knee_queue.message m
                    WHERE m.receiver = w.whose AND m.queue = w.queue AND m.leased_until IS NULL
                      AND m.id >= w.low ORDER BY m.id LIMIT w.calls FOR UPDATE SKIP LOCKED) r))
            RETURNING m.id, m.queue, m.sender, m.receiver, m.arrived_at, m.attempts, m.content
        ), dealt AS (
            SELECT r.*, row_number() OVER (PARTITION BY r.receiver, r.queue ORDER BY r.id) AS place
            FROM removed r
        )
        SELECT h.n, 0, h.epoch, h.own, h.nobodys,
               d.id, d.sender, d.receiver, d.arrived_at, d.attempts, d.content
        FROM head h
        LEFT JOIN dealt d ON d.receiver = h.whose AND d.queue = h.queue AND d.place = h.place
        WHERE d.id IS NOT NULL OR (h.own IS NULL AND h.nobodys IS NULL)
    LOOP
        served[call] := true;
        RETURN NEXT;
    END LOOP;
    FOR n IN 1 .. cardinality(p_receivers) LOOP
        IF NOT served[n] THEN
            RETURN QUERY SELECT n, t.* FROM knee_queue.take(p_receivers[n], p_queues[n], 1, 1,
                p_lease_us[n], p_floors[n], p_floors_nobodys[n], p_epochs[n]) t;
        END IF;
    END LOOP;
END $$;
