-- From its end on, those who begin to send to the queues learn that they are watched; those who are senders() by
-- then may not have. It need not survive a crash, which ends the watching, too. Answers which queues are there;
-- NULL where somebody has the queue's row just now, as who deletes it: that is not waited for, as others are in the
-- same call.
CREATE FUNCTION watch(p_queues integer[], p_seconds integer)
RETURNS TABLE (queue integer, there boolean)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    watched integer[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH altered AS (
        UPDATE knee_queue.watched_queue w SET until = now() + p_seconds * interval '1 second'
        WHERE w.id = ANY (ARRAY(
            SELECT l.id FROM knee_queue.watched_queue l WHERE l.id = ANY (p_queues) FOR UPDATE SKIP LOCKED))
        RETURNING w.id
    )
    SELECT array_agg(a.id) INTO watched FROM altered a;
    RETURN QUERY
    SELECT u.id, CASE WHEN u.id = ANY (watched) THEN true
        WHEN (SELECT w.id FROM knee_queue.watched_queue w WHERE w.id = u.id) IS NULL THEN false END
    FROM unnest(p_queues) u (id);
END $$;

-- The transactions that are sending to queues, or put something back there; a lock of -1, which is no queue, is of those
-- who may do so in any. Nobody waits for their lock: those who want to send would have to wait behind him.
CREATE FUNCTION senders(p_queues integer[]) RETURNS TABLE (queue integer, sender text)
LANGUAGE sql VOLATILE AS $$
    SELECT q.id, l.virtualtransaction FROM pg_locks l
    CROSS JOIN LATERAL unnest(CASE WHEN l.objid = '4294967295'::oid THEN p_queues ELSE ARRAY[l.objid::integer] END) q (id)
    WHERE l.locktype = 'advisory' AND l.classid = 1263420741
      AND (l.objid = '4294967295'::oid OR l.objid = ANY (p_queues::oid[])) AND l.objsubid = 2
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND l.granted
$$;

-- Tells those who listen of arrivals: "NAME:QUEUE RECEIVER,QUEUE RECEIVER", with the name of who tells.
CREATE FUNCTION tell(p_arrivals text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_notify('knee_queue', p_arrivals);
END $$;
