-- Background jobs: each server tries, and one at a time does it.

-- Ends leases that are over, at most so many.
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

-- Begins a round over all ready messages: whether there is anything to do, and the deleted queues to which no open
-- transaction can send any more. Their ready messages are removed when the round has ended.
CREATE FUNCTION begin_round(OUT needed boolean, OUT gone integer[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    settled xid8 := pg_snapshot_xmin(pg_current_snapshot());
BEGIN
    gone := ARRAY(SELECT d.id FROM knee_queue.deleted_queue d WHERE d.known_to <= settled);
    -- Later transactions see the deletion.
    UPDATE knee_queue.deleted_queue d SET known_to = pg_current_xact_id() WHERE d.known_to IS NULL;
    needed := EXISTS (SELECT FROM knee_queue.deleted_queue)
        OR EXISTS (SELECT FROM knee_queue.queue q WHERE q.retention IS NOT NULL);
END $$;

-- Goes on with a round after a pair of receiver and queue: removes expired ready messages, and those of deleted queues,
-- p_count at most. Looks at one pair after the other for so many microseconds, and at least at one. Answers the last pair
-- that is done, or NULL at the end of the round; how many messages are removed; and whether messages of a deleted queue
-- were passed over, because another call was taking them. Leased messages of a deleted queue go when their lease is over.
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
            -- The oldest are at the head. Only they are locked: other calls would pass over the rest. Behind locked
            -- messages there may be more.
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

-- Forgets the deleted queues of a round that has ended.
CREATE FUNCTION end_round(p_gone integer[]) RETURNS void
LANGUAGE sql VOLATILE AS $$ DELETE FROM knee_queue.deleted_queue d WHERE d.id = ANY (p_gone) $$;

-- The horizon: all messages up to number `last` were sent by transactions before `next`, in a log that is written as far as
-- `logged`. Transactions before `settled` have ended, and the log is on the disk as far as `flushed`. The order of the
-- statements matters: a message's number is later than its transaction's, and earlier than the look at the log.
--
-- The sequence is not read as a table: while nextval() writes to the log, its row has a number ahead of those given, and
-- SELECT does not wait for that. NULL: none was given.
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
