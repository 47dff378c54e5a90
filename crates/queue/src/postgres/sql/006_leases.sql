-- Leases are found by the numbers of their messages, then compared with the given leases in a hash table. IS TRUE keeps
-- the planner from turning this into a join, which might scan all leases.

-- Ends the given leases and removes their messages. Returns the leases that had not ended before.
CREATE FUNCTION acknowledge(p_messages bigint[], p_attempts integer[])
RETURNS TABLE (message bigint, attempt integer)
LANGUAGE sql VOLATILE AS $$
    DELETE FROM knee_queue.message m
    WHERE m.id = ANY (p_messages) AND m.leased_until > '-infinity'
      AND ((m.id, m.attempts) IN (SELECT * FROM unnest(p_messages, p_attempts))) IS TRUE
      AND (SELECT true FROM knee_queue.queue q WHERE q.id = m.queue)
    RETURNING m.id, m.attempts
$$;

-- Extends the given leases. Returns the leases that had not ended before.
CREATE FUNCTION extend(p_messages bigint[], p_attempts integer[], p_lease_us bigint)
RETURNS TABLE (message bigint, attempt integer)
LANGUAGE sql VOLATILE AS $$
    UPDATE knee_queue.message m SET leased_until = now() + p_lease_us * interval '1 microsecond'
    WHERE m.id = ANY (p_messages) AND m.leased_until > '-infinity'
      AND ((m.id, m.attempts) IN (SELECT * FROM unnest(p_messages, p_attempts))) IS TRUE
      AND (SELECT true FROM knee_queue.queue q WHERE q.id = m.queue)
    RETURNING m.id, m.attempts
$$;

-- Puts back leased messages, which the caller has locked: at their old place or, after the last attempt, into the queue
-- of dead letters. Raises the epochs of the queues that get them. Removes messages of a deleted queue; their row has no
-- queue.
CREATE FUNCTION put_back(p_messages bigint[])
RETURNS TABLE (message bigint, attempt integer, queue integer, receiver integer)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH target AS MATERIALIZED (
        SELECT m.ctid AS tid, m.id, m.attempts, m.receiver, q.id AS old,
               CASE WHEN m.attempts - m.attempts_elsewhere >= q.attempts_max
                    THEN coalesce((SELECT d.id FROM knee_queue.queue d WHERE d.id = q.dead_letters), q.id)
                    ELSE q.id END AS new
        FROM knee_queue.message m
        LEFT JOIN LATERAL (SELECT * FROM knee_queue.queue q WHERE q.id = m.queue OFFSET 0) q ON true
        WHERE m.id = ANY (p_messages) AND m.leased_until > '-infinity'
    ), gone AS (
        -- The messages are locked, so they still exist.
        DELETE FROM knee_queue.message m USING target t WHERE m.ctid = t.tid AND t.new IS NULL
    ), back AS (
        UPDATE knee_queue.message m
        SET leased_until = NULL, queue = t.new,
            attempts_elsewhere = CASE t.new WHEN t.old THEN m.attempts_elsewhere ELSE m.attempts END
        FROM target t WHERE m.ctid = t.tid AND t.new IS NOT NULL
    ), raised AS (
        -- All calls lock the queues in the same order, so they cannot deadlock.
        UPDATE knee_queue.queue q SET epoch = q.epoch + 1
        WHERE q.id = ANY (ARRAY(
            SELECT l.id FROM knee_queue.queue l
            WHERE l.id = ANY (ARRAY(SELECT t.new FROM target t)) ORDER BY l.id FOR UPDATE))
    )
    SELECT t.id, t.attempts, t.new, t.receiver FROM target t;
END $$;

-- Ends the given leases and puts their messages back. Returns the leases that had not ended before.
CREATE FUNCTION release(p_messages bigint[], p_attempts integer[])
RETURNS TABLE (message bigint, attempt integer, queue integer, receiver integer)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT * FROM knee_queue.put_back(ARRAY(
        SELECT m.id FROM knee_queue.message m
        WHERE m.id = ANY (p_messages) AND m.leased_until > '-infinity'
          AND ((m.id, m.attempts) IN (SELECT * FROM unnest(p_messages, p_attempts))) IS TRUE
        ORDER BY m.id FOR UPDATE)) b
    WHERE b.queue IS NOT NULL;
END $$;
