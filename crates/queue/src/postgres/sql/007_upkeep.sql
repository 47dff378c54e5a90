-- What keepers call: every middleware is one, and one at a time does it.

-- Puts back what was leased for too long: as many as asked for, unless there are no more.
CREATE FUNCTION end_leases(p_count integer)
RETURNS TABLE (message bigint, attempt integer, queue integer, receiver integer)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF pg_try_advisory_xact_lock(1263420742, 1) THEN
        RETURN QUERY SELECT * FROM knee_queue.put_back(ARRAY(
            SELECT m.id FROM knee_queue.message m
            WHERE m.leased_until <= now() AND m.leased_until < 'infinity'
            ORDER BY m.leased_until LIMIT p_count FOR UPDATE SKIP LOCKED));
    END IF;
END $$;

-- What a round over all ready messages begins with: whether there is anything to do, and the queues that
-- are gone and to which nobody can send any more who has not seen them go. What is ready there is removed
-- when that round has ended.
CREATE FUNCTION begin_round(OUT needed boolean, OUT gone integer[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    settled xid8 := pg_snapshot_xmin(pg_current_snapshot());
BEGIN
    gone := ARRAY(SELECT d.id FROM knee_queue.deleted_queue d WHERE d.known_to <= settled);
    -- Whoever has a number from now on sees that the queue is gone.
    UPDATE knee_queue.deleted_queue d SET known_to = pg_current_xact_id() WHERE d.known_to IS NULL;
    needed := EXISTS (SELECT FROM knee_queue.deleted_queue)
        OR EXISTS (SELECT FROM knee_queue.queue q WHERE q.retention IS NOT NULL);
END $$;

-- Goes on with a round behind a pair of receiver and queue: removes ready messages that are older than
-- their queue keeps them, and those of queues that are gone, p_count at most. Looks at one pair after the
-- other, as many as it can in so many microseconds, and at least at one. Answers the last pair that was
-- dealt with, none where the round has ended; how many it has removed; and whether somebody was just
-- taking what a queue that is gone has left: what others are taking is passed over. What is leased of a queue that is gone goes when its lease is over.
CREATE FUNCTION sweep(
    p_receiver integer, p_queue integer, p_count integer, p_busy_us bigint,
    OUT receiver integer, OUT queue integer, OUT removed integer, OUT passed_over boolean)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    until timestamptz := clock_timestamp() + p_busy_us * interval '1 microsecond';
    more integer;
    head record;
    low bigint;
    high bigint;
    is_last boolean;
BEGIN
    receiver := p_receiver; queue := p_queue; removed := 0; passed_over := false;
    IF NOT pg_try_advisory_xact_lock(1263420742, 2) THEN
        RETURN;
    END IF;
    LOOP
        SELECT m.receiver, m.queue, m.arrived_at, q.id IS NULL AS gone, now() - q.retention AS before
        INTO head
        FROM (SELECT n.receiver, n.queue, n.arrived_at FROM knee_queue.message n
              WHERE n.leased_until IS NULL AND (n.receiver, n.queue) > (receiver, queue)
              ORDER BY n.receiver, n.queue, n.id LIMIT 1) m
        LEFT JOIN LATERAL (SELECT * FROM knee_queue.queue q WHERE q.id = m.queue OFFSET 0) q ON true;
        IF NOT FOUND THEN
            receiver := NULL; queue := NULL;
            RETURN;
        END IF;
        IF head.gone THEN
            DELETE FROM knee_queue.message m WHERE m.ctid = ANY (ARRAY(
                SELECT o.ctid FROM knee_queue.message o
                WHERE o.receiver = head.receiver AND o.queue = head.queue AND o.leased_until IS NULL
                ORDER BY o.id LIMIT p_count - removed FOR UPDATE SKIP LOCKED));
            GET DIAGNOSTICS more = ROW_COUNT;
            removed := removed + more;
            EXIT WHEN removed >= p_count;
            passed_over := passed_over OR EXISTS (SELECT FROM knee_queue.message m
                WHERE m.receiver = head.receiver AND m.queue = head.queue AND m.leased_until IS NULL);
        ELSIF head.arrived_at < head.before THEN
            -- The oldest are at the head; only they are locked, or others would pass over the rest. Behind what
            -- others have there may be more.
            high := 0;
            LOOP
                low := high;
                SELECT max(h.id) FILTER (WHERE h.arrived_at < head.before), count(*) INTO high, more
                FROM (SELECT n.id, n.arrived_at FROM knee_queue.message n
                      WHERE n.receiver = head.receiver AND n.queue = head.queue
                        AND n.leased_until IS NULL AND n.id > low
                      ORDER BY n.id LIMIT p_count - removed) h;
                is_last := high IS NULL OR more < p_count - removed;
                DELETE FROM knee_queue.message m WHERE m.ctid = ANY (ARRAY(
                    SELECT o.ctid FROM knee_queue.message o
                    WHERE o.receiver = head.receiver AND o.queue = head.queue
                      AND o.leased_until IS NULL AND o.id > low AND o.id <= high
                      AND o.arrived_at < head.before
                    ORDER BY o.id FOR UPDATE SKIP LOCKED));
                GET DIAGNOSTICS more = ROW_COUNT;
                removed := removed + more;
                EXIT WHEN is_last OR removed >= p_count OR clock_timestamp() >= until;
            END LOOP;
            EXIT WHEN removed >= p_count;
        END IF;
        receiver := head.receiver; queue := head.queue;
        EXIT WHEN clock_timestamp() >= until;
    END LOOP;
END $$;

-- Forgets the queues that were gone when a round began that has ended.
CREATE FUNCTION end_round(p_gone integer[]) RETURNS void
LANGUAGE sql VOLATILE AS $$ DELETE FROM knee_queue.deleted_queue d WHERE d.id = ANY (p_gone) $$;

-- What is to be known of messages that are still to come: all whose numbers are up to `last` were sent
-- by transactions before `next`, in a log that is written as far as `logged`. Those before `settled` have
-- ended, and the log is on the disk as far as `flushed`. The order of these statements matters: whoever
-- has a number for a message has one for its transaction, and whoever reads it finds it in the log.
--
-- The sequence is not read as a table: while it writes to the log, nextval() has in the row a number that
-- lies ahead of those given, and SELECT, which does not wait for it, would see that. NULL: none was given.
CREATE FUNCTION horizon(
    OUT settled bigint, OUT flushed bigint, OUT last bigint, OUT next bigint, OUT logged bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    settled := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
    flushed := pg_current_wal_flush_lsn() - '0/0'::pg_lsn;
    last := coalesce(pg_sequence_last_value('knee_queue.message_id'), 0);
    next := pg_current_xact_id()::text::bigint;
    logged := pg_current_wal_insert_lsn() - '0/0'::pg_lsn;
END $$;
