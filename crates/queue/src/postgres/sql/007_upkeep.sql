-- Background jobs: every server attempts each job, and one server at a time runs it.

-- Ends at most p_count expired leases.
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

-- Begins a round over all ready messages. Returns whether there is work, and the deleted queues to which no open
-- transaction can still send. By the end of the round, the ready messages of these queues are removed.
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

-- Continues a round after the given pair of receiver and queue. Removes at most p_count ready messages, which have
-- expired or belong to a deleted queue. Visits one pair after the other for p_busy_us microseconds, and at least one
-- pair. Returns the last finished pair, or NULL at the end of the round; the number of removed messages; and whether it
-- skipped messages of a deleted queue that another call was taking. Leased messages of a deleted queue are removed when
-- their leases end.
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
            -- The oldest messages have the lowest numbers. Lock only expired messages, because other calls skip locked
            -- ones. More expired messages may follow those that other calls have locked.
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

-- The horizon. Transactions before `next` took all message numbers up to `last`; the write-ahead log records these
-- numbers before `logged`. Transactions before `settled` have ended, and the log is on the disk up to `flushed`. The
-- order of the statements matters: a send takes its transaction's number before its message's number.
--
-- SELECT from the sequence would not do: while nextval() writes to the log, the sequence's row is ahead of the numbers
-- given, and SELECT does not wait. pg_sequence_last_value() is NULL if no number was given.
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
