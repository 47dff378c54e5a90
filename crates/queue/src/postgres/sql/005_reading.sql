-- Reads messages above a number. Returns at least one row, which may report a missing client or queue.
CREATE FUNCTION read(
    p_receiver integer, p_queue integer, p_after bigint, p_count integer, p_bytes bigint,
    p_floor bigint, p_floor_nobodys bigint, p_epoch bigint)
RETURNS TABLE (
    problem integer, about integer,
    id bigint, sender integer, receiver integer, arrived_at timestamptz, content text)
LANGUAGE sql STABLE AS $$
    SELECT c.problem, CASE c.problem WHEN 1 THEN p_receiver WHEN 2 THEN p_queue END,
           h.id, h.sender, h.receiver, h.arrived_at, h.content
    FROM (SELECT CASE
            WHEN p_receiver <> 0 AND NOT EXISTS (SELECT FROM knee_queue.client c WHERE c.id = p_receiver)
            THEN 1
            WHEN NOT EXISTS (SELECT FROM knee_queue.queue q WHERE q.id = p_queue) THEN 2
            ELSE 0 END AS problem) c
    LEFT JOIN (
        SELECT *, sum(octet_length(f.content)) OVER (ORDER BY f.id) - octet_length(f.content) AS before
        FROM (
            (SELECT m.* FROM knee_queue.message m
             WHERE m.receiver = p_receiver AND m.queue = p_queue AND m.leased_until IS NULL
               AND m.id > p_after
               AND m.id >= CASE (SELECT q.epoch FROM knee_queue.queue q WHERE q.id = p_queue)
                           WHEN p_epoch THEN p_floor ELSE 0 END
             ORDER BY m.id LIMIT p_count)
            UNION ALL
            (SELECT m.* FROM knee_queue.message m
             WHERE m.receiver = 0 AND m.queue = p_queue AND m.leased_until IS NULL
               AND m.id > p_after AND p_receiver <> 0
               AND m.id >= CASE (SELECT q.epoch FROM knee_queue.queue q WHERE q.id = p_queue)
                           WHEN p_epoch THEN p_floor_nobodys ELSE 0 END
             ORDER BY m.id LIMIT p_count)
            ORDER BY id LIMIT p_count) f
    ) h ON c.problem = 0 AND (h.before = 0 OR h.before < p_bytes)
    ORDER BY h.id
$$;

-- Reads the oldest message from a sender, in any queue. Returns one row.
CREATE FUNCTION read_from(p_receiver integer, p_sender integer)
RETURNS TABLE (
    problem integer, about integer,
    id bigint, sender integer, receiver integer, arrived_at timestamptz, content text, queue integer)
LANGUAGE sql STABLE AS $$
    SELECT c.problem, c.about, h.id, h.sender, h.receiver, h.arrived_at, h.content, h.queue
    FROM (SELECT CASE WHEN w.who IS NULL THEN 0 ELSE 1 END AS problem, w.who AS about
          FROM (SELECT (SELECT u.who FROM unnest(ARRAY[p_receiver, p_sender]) u (who)
                WHERE u.who <> 0 AND (SELECT c.id FROM knee_queue.client c WHERE c.id = u.who) IS NULL
                LIMIT 1) AS who) w) c
    LEFT JOIN (
        (SELECT m.* FROM knee_queue.message m
         WHERE m.receiver = p_receiver AND m.sender = p_sender AND m.leased_until IS NULL
           AND (SELECT true FROM knee_queue.queue q WHERE q.id = m.queue) ORDER BY m.id LIMIT 1)
        UNION ALL
        (SELECT m.* FROM knee_queue.message m
         WHERE m.receiver = 0 AND m.sender = p_sender AND m.leased_until IS NULL
           AND (SELECT true FROM knee_queue.queue q WHERE q.id = m.queue) ORDER BY m.id LIMIT 1)
        ORDER BY id LIMIT 1
    ) h ON c.problem = 0
$$;

-- Lists the queues with messages for a client. Steps through the index from queue to queue, so the number of messages
-- does not matter. Returns at least one row.
CREATE FUNCTION list_queues(p_receiver integer)
RETURNS TABLE (problem integer, about integer, queue integer)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE step (whose, queue) AS (
        SELECT w.whose, (SELECT m.queue FROM knee_queue.message m
            WHERE m.receiver = w.whose AND m.leased_until IS NULL
            ORDER BY m.queue, m.id LIMIT 1)
        FROM (SELECT DISTINCT unnest(ARRAY[p_receiver, 0])) w (whose)
        UNION ALL
        SELECT s.whose, (SELECT m.queue FROM knee_queue.message m
            WHERE m.receiver = s.whose AND m.leased_until IS NULL AND m.queue > s.queue
            ORDER BY m.queue, m.id LIMIT 1)
        FROM step s WHERE s.queue IS NOT NULL
    )
    SELECT c.problem, CASE c.problem WHEN 1 THEN p_receiver END, l.queue
    FROM (SELECT CASE
            WHEN p_receiver <> 0 AND NOT EXISTS (SELECT FROM knee_queue.client c WHERE c.id = p_receiver)
            THEN 1 ELSE 0 END AS problem) c
    LEFT JOIN (SELECT DISTINCT s.queue FROM step s
               WHERE (SELECT true FROM knee_queue.queue q WHERE q.id = s.queue)) l ON c.problem = 0
    ORDER BY l.queue
$$;

-- Scans the tables.
CREATE FUNCTION counts(OUT messages bigint, OUT clients bigint, OUT queues bigint)
LANGUAGE sql STABLE AS $$
    SELECT (SELECT count(*) FROM knee_queue.message m JOIN knee_queue.queue q ON q.id = m.queue),
           (SELECT count(*) FROM knee_queue.client), (SELECT count(*) FROM knee_queue.queue)
$$;
