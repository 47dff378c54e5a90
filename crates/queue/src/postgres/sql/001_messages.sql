-- Knee's messages. Every access is a call of one of the functions below, which is a transaction of
-- its own. What they answer is read by crates/queue/src/postgres/calls.rs.

-- Numbers are never used twice. A send takes its messages' while it lasts, one by one: a message whose
-- send was answered before another's began has the lower one. So no CACHE.
CREATE SEQUENCE message_id AS bigint;
CREATE SEQUENCE middleware_id AS integer;

CREATE TABLE client (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    middleware integer NOT NULL
);

CREATE TABLE queue (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    creator integer NOT NULL,
    dead_letters integer,
    attempts_max integer NOT NULL,
    retention interval,
    -- Counts how often messages were put back: where they are ready again is not known to those who
    -- have kept a floor.
    epoch bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE INDEX kept_for_a_time ON queue (id) WHERE retention IS NOT NULL;

-- Until when somebody waits for what arrives in a queue; a row for each queue that there is. Who begins to wait need
-- not wait for those who raise epochs, and whoever sends looks here only.
CREATE TABLE watched_queue (
    id integer PRIMARY KEY,
    until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);

-- Queues that are gone and whose messages are not, yet; and the first transaction that knew.
CREATE TABLE deleted_queue (
    id integer PRIMARY KEY,
    known_to xid8
);

-- No foreign keys: each would lock the rows of client and queue that everybody shares.
CREATE TABLE message (
    id bigint NOT NULL,
    queue integer NOT NULL,
    sender integer NOT NULL,
    receiver integer NOT NULL,
    arrived_at timestamptz NOT NULL,
    leased_until timestamptz,
    -- Leases it has had, and how many of them elsewhere, before it came to the dead letters.
    attempts integer NOT NULL DEFAULT 0,
    attempts_elsewhere integer NOT NULL DEFAULT 0,
    content text NOT NULL
);

CREATE INDEX ready ON message (receiver, queue, id) WHERE leased_until IS NULL;
CREATE INDEX ready_from ON message (receiver, sender, id) WHERE leased_until IS NULL;
CREATE INDEX leased ON message (id) WHERE leased_until IS NOT NULL;
CREATE INDEX leased_until ON message (leased_until) WHERE leased_until IS NOT NULL;

-- What an answer's `problem` says: 0 nothing, 1 there is no such client, 2 there is no such queue; and
-- `about`, which.

CREATE FUNCTION register_middleware() RETURNS integer
LANGUAGE sql VOLATILE AS $$ SELECT nextval('knee_queue.middleware_id')::integer $$;

CREATE FUNCTION register_client(p_middleware integer) RETURNS integer
LANGUAGE sql VOLATILE AS $$
    INSERT INTO knee_queue.client (middleware) VALUES (p_middleware) RETURNING id
$$;

CREATE FUNCTION create_queue(
    p_creator integer, p_dead_letters integer, p_attempts_max integer, p_retention_us bigint,
    OUT problem integer, OUT about integer, OUT id integer)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    problem := 0;
    IF p_creator <> 0 AND NOT EXISTS (SELECT FROM knee_queue.client c WHERE c.id = p_creator) THEN
        problem := 1; about := p_creator; RETURN;
    END IF;
    IF p_dead_letters IS NOT NULL
       AND NOT EXISTS (SELECT FROM knee_queue.queue q WHERE q.id = p_dead_letters) THEN
        problem := 2; about := p_dead_letters; RETURN;
    END IF;
    INSERT INTO knee_queue.queue AS q (creator, dead_letters, attempts_max, retention)
    VALUES (p_creator, p_dead_letters, p_attempts_max, p_retention_us * interval '1 microsecond')
    RETURNING q.id INTO create_queue.id;
    INSERT INTO knee_queue.watched_queue VALUES (create_queue.id);
END $$;

-- The queue is gone at once; its messages go later, by sweep().
CREATE FUNCTION delete_queue(p_queue integer, OUT problem integer, OUT about integer, OUT watched boolean)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM knee_queue.queue q WHERE q.id = p_queue;
    IF NOT FOUND THEN
        problem := 2; about := p_queue; RETURN;
    END IF;
    problem := 0;
    DELETE FROM knee_queue.watched_queue w WHERE w.id = p_queue RETURNING w.until > now() INTO watched;
    watched := coalesce(watched, false);
    INSERT INTO knee_queue.deleted_queue VALUES (p_queue);
END $$;

-- Sends one message. Its transaction has a number before the message has: what horizon() relies on.
-- The lock is shared by all who send there: senders() sees them by it.
CREATE FUNCTION send(
    p_sender integer, p_receiver integer, p_queue integer, p_content text,
    OUT problem integer, OUT about integer, OUT id bigint, OUT watched boolean)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    sender_there boolean;
    receiver_there boolean;
    until timestamptz;
BEGIN
    -- An expression, as PERFORM would be two statements more. Neither is ever NULL.
    IF pg_current_xact_id() IS NULL OR pg_advisory_xact_lock_shared(1263420741, p_queue) IS NULL THEN
        RETURN;
    END IF;
    SELECT p_sender = 0 OR EXISTS (SELECT FROM knee_queue.client c WHERE c.id = p_sender),
           p_receiver = 0 OR EXISTS (SELECT FROM knee_queue.client c WHERE c.id = p_receiver),
           (SELECT w.until FROM knee_queue.watched_queue w WHERE w.id = p_queue)
    INTO sender_there, receiver_there, until;
    problem := 0;
    IF NOT sender_there THEN
        problem := 1; about := p_sender; RETURN;
    ELSIF NOT receiver_there THEN
        problem := 1; about := p_receiver; RETURN;
    ELSIF until IS NULL THEN
        problem := 2; about := p_queue; RETURN;
    END IF;
    watched := until > now();
    id := nextval('knee_queue.message_id');
    INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content)
    VALUES (id, p_queue, p_sender, p_receiver, now(), p_content);
END $$;

-- Makes the caller's transaction one of the senders() of queues: by a lock for each; where these are many, by one for
-- all queues that there are, as PostgreSQL has room for 64 (max_locks_per_transaction) and no more in each session.
CREATE FUNCTION begin_to_send(p_queues integer[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1263420741, CASE WHEN o.queues > 32 THEN 0 ELSE o.q END)
    FROM (SELECT q, count(*) OVER () AS queues FROM unnest(p_queues) q WHERE q IS NOT NULL GROUP BY q) o;
END $$;

-- Sends what several calls want to have sent: each call's messages all or none. The messages of a call
-- have its number and follow each other. One row for each message, in their order; `problem` is its
-- call's.
CREATE FUNCTION send_all(
    p_calls integer[], p_senders integer[], p_receivers integer[], p_queues integer[], p_contents text[])
RETURNS TABLE (call integer, problem integer, about integer, id bigint, watched boolean)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_current_xact_id();
    PERFORM knee_queue.begin_to_send(p_queues);
    RETURN QUERY
    WITH item AS MATERIALIZED (
        SELECT u.*,
            CASE WHEN u.sender <> 0 AND NOT EXISTS (SELECT FROM knee_queue.client c WHERE c.id = u.sender)
                    THEN 1
                 WHEN u.receiver <> 0
                    AND NOT EXISTS (SELECT FROM knee_queue.client c WHERE c.id = u.receiver) THEN 3
                 WHEN w.id IS NULL THEN 2 ELSE 0 END AS wrong,
            w.until > now() AS watch
        FROM unnest(p_calls, p_senders, p_receivers, p_queues, p_contents)
             WITH ORDINALITY u (n, sender, receiver, queue, content, place)
        LEFT JOIN knee_queue.watched_queue w ON w.id = u.queue
    ), refused AS MATERIALIZED (
        SELECT DISTINCT ON (i.n) i.n, CASE i.wrong WHEN 2 THEN 2 ELSE 1 END AS wrong,
            CASE i.wrong WHEN 1 THEN i.sender WHEN 2 THEN i.queue ELSE i.receiver END AS what
        FROM item i WHERE i.wrong <> 0 ORDER BY i.n, i.place
    ), numbered AS MATERIALIZED (
        SELECT o.*, nextval('knee_queue.message_id') AS number
        FROM (SELECT * FROM item i WHERE i.n NOT IN (SELECT r.n FROM refused r) ORDER BY i.place) o
    ), inserted AS (
        INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content)
        SELECT m.number, m.queue, m.sender, m.receiver, now(), m.content FROM numbered m
    )
    SELECT m.n, 0, NULL::integer, m.number, m.watch FROM numbered m
    UNION ALL
    SELECT r.n, r.wrong, r.what, NULL, NULL FROM refused r;
END $$;

-- Removes the first messages of a queue that a client may have, its own and nobody's, in the order of
-- their numbers, or hides them for so many microseconds. Messages that others are removing are passed
-- over; nothing is answered only where there was a time at which nothing else was ready. Those below the
-- floors are not looked at, where the epoch is still the caller's.
--
-- At least one row: the first of each kind that is to be seen ready, by somebody who waits for nobody,
-- bounds the next floors.
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
    -- What was sent up to here began before the heads are looked at: what has a higher number may have been
    -- sent after something of the other kind that they do not show.
    last bigint := coalesce(pg_sequence_last_value('knee_queue.message_id'), 0);
BEGIN
    -- One statement: epoch and heads are of one snapshot. OFFSET lets the queue be looked up once.
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
    -- Once there is neither any more.
    passed := ARRAY[head, head_nobodys];
    -- From the one to the other as their numbers alternate: only what is taken may be locked, or others
    -- would pass over what stays.
    WHILE taken < p_count AND (taken = 0 OR bytes < p_bytes) AND (own IS NOT NULL OR nobodys IS NOT NULL)
    LOOP
        IF nobodys IS NULL OR own < nobodys THEN
            whose := p_receiver; low := own; high := coalesce(nobodys, last + 1);
        ELSE
            whose := 0; low := nobodys; high := coalesce(own, last + 1);
        END IF;
        IF p_count = 1 THEN
            -- In one statement, which is less work than two. It does not see a message that was leased and
            -- put back since it began; those below do.
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
        -- One by one: how many there will be depends on their sizes.
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
        -- Others have what was to be seen; but they may have come too late for it as well, and have taken what
        -- was sent meanwhile, and some may be back from below the floors: in another epoch than what is answered,
        -- which is that of the heads. Nothing is ready once all that is to be seen has been passed over before.
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

-- What several calls want to have taken, each one message; they are counted from 1.
--
-- Those who remove their own messages where nobody's are not ready, or who find none, are served by one
-- statement; the others, and whoever got none there, one by one.
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
            -- Epoch and heads are of one snapshot, as in take().
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
                JOIN knee_queue.queue q ON q.id = u.queue
                WHERE u.lease_us IS NULL AND u.whose <> 0
                  AND EXISTS (SELECT FROM knee_queue.client c WHERE c.id = u.whose)
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

-- Messages from above a number on; at least one row, which says who is not there.
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

-- The oldest message from a sender.
CREATE FUNCTION read_from(p_receiver integer, p_sender integer)
RETURNS TABLE (
    problem integer, about integer,
    id bigint, sender integer, receiver integer, arrived_at timestamptz, content text, queue integer)
LANGUAGE sql STABLE AS $$
    SELECT c.problem, c.about, h.id, h.sender, h.receiver, h.arrived_at, h.content, h.queue
    FROM (SELECT CASE WHEN w.who IS NULL THEN 0 ELSE 1 END AS problem, w.who AS about
          FROM (SELECT (SELECT u.who FROM unnest(ARRAY[p_receiver, p_sender]) u (who)
                WHERE u.who <> 0 AND NOT EXISTS (SELECT FROM knee_queue.client c WHERE c.id = u.who)
                LIMIT 1) AS who) w) c
    LEFT JOIN (
        (SELECT m.* FROM knee_queue.message m
         WHERE m.receiver = p_receiver AND m.sender = p_sender AND m.leased_until IS NULL
           AND EXISTS (SELECT FROM knee_queue.queue q WHERE q.id = m.queue) ORDER BY m.id LIMIT 1)
        UNION ALL
        (SELECT m.* FROM knee_queue.message m
         WHERE m.receiver = 0 AND m.sender = p_sender AND m.leased_until IS NULL
           AND EXISTS (SELECT FROM knee_queue.queue q WHERE q.id = m.queue) ORDER BY m.id LIMIT 1)
        ORDER BY id LIMIT 1
    ) h ON c.problem = 0
$$;

-- The queues with messages for a client, as many steps through the index as there are queues, however
-- many messages; at least one row.
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
               WHERE EXISTS (SELECT FROM knee_queue.queue q WHERE q.id = s.queue)) l ON c.problem = 0
    ORDER BY l.queue
$$;

-- Counted one by one.
CREATE FUNCTION counts(OUT messages bigint, OUT clients bigint, OUT queues bigint)
LANGUAGE sql STABLE AS $$
    SELECT (SELECT count(*) FROM knee_queue.message m JOIN knee_queue.queue q ON q.id = m.queue),
           (SELECT count(*) FROM knee_queue.client), (SELECT count(*) FROM knee_queue.queue)
$$;

-- The leases among the given ones that had not ended; their messages are gone.
CREATE FUNCTION acknowledge(p_messages bigint[], p_attempts integer[])
RETURNS TABLE (message bigint, attempt integer)
LANGUAGE sql VOLATILE AS $$
    DELETE FROM knee_queue.message m USING unnest(p_messages, p_attempts) l (message, attempt)
    WHERE m.id = l.message AND m.attempts = l.attempt AND m.leased_until IS NOT NULL
      AND EXISTS (SELECT FROM knee_queue.queue q WHERE q.id = m.queue)
    RETURNING m.id, m.attempts
$$;

-- The leases among the given ones that had not ended; they end later now.
CREATE FUNCTION extend(p_messages bigint[], p_attempts integer[], p_lease_us bigint)
RETURNS TABLE (message bigint, attempt integer)
LANGUAGE sql VOLATILE AS $$
    UPDATE knee_queue.message m SET leased_until = now() + p_lease_us * interval '1 microsecond'
    FROM unnest(p_messages, p_attempts) l (message, attempt)
    WHERE m.id = l.message AND m.attempts = l.attempt AND m.leased_until IS NOT NULL
      AND EXISTS (SELECT FROM knee_queue.queue q WHERE q.id = m.queue)
    RETURNING m.id, m.attempts
$$;

-- Lets others have leased messages, which the caller has locked: at their old place or, after their
-- queue's last attempt, in its queue of dead letters. Raises the epochs of the queues where they are now.
-- Messages whose queue is gone go as well; their row has none. Whoever calls it is one of the senders() of
-- all queues that may have them then.
CREATE FUNCTION put_back(p_messages bigint[])
RETURNS TABLE (message bigint, attempt integer, queue integer, receiver integer, watched boolean)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    PERFORM knee_queue.begin_to_send(ARRAY(
        SELECT unnest(CASE WHEN m.attempts - m.attempts_elsewhere >= q.attempts_max
                      THEN ARRAY[q.id, q.dead_letters] ELSE ARRAY[q.id] END)
        FROM unnest(p_messages) p (id)
        JOIN knee_queue.message m ON m.id = p.id AND m.leased_until IS NOT NULL
        JOIN knee_queue.queue q ON q.id = m.queue));
    RETURN QUERY
    WITH target AS MATERIALIZED (
        SELECT m.id, m.attempts, m.receiver, q.id AS old,
               CASE WHEN m.attempts - m.attempts_elsewhere >= q.attempts_max
                    THEN coalesce(d.id, q.id) ELSE q.id END AS new
        FROM unnest(p_messages) p (id)
        JOIN knee_queue.message m ON m.id = p.id AND m.leased_until IS NOT NULL
        LEFT JOIN knee_queue.queue q ON q.id = m.queue
        LEFT JOIN knee_queue.queue d ON d.id = q.dead_letters
    ), gone AS (
        DELETE FROM knee_queue.message m USING target t
        WHERE t.new IS NULL AND m.id = t.id AND m.leased_until IS NOT NULL
    ), back AS (
        UPDATE knee_queue.message m
        SET leased_until = NULL, queue = t.new,
            attempts_elsewhere = CASE t.new WHEN t.old THEN m.attempts_elsewhere ELSE m.attempts END
        FROM target t WHERE m.id = t.id AND m.leased_until IS NOT NULL AND t.new IS NOT NULL
    ), raised AS (
        -- In one order for everybody: none waits for one who waits for him.
        UPDATE knee_queue.queue q SET epoch = q.epoch + 1
        FROM (SELECT l.id FROM knee_queue.queue l
              WHERE l.id IN (SELECT t.new FROM target t) ORDER BY l.id FOR UPDATE) l
        WHERE q.id = l.id
    )
    SELECT t.id, t.attempts, t.new, t.receiver, coalesce(w.until > now(), false)
    FROM target t LEFT JOIN knee_queue.watched_queue w ON w.id = t.new;
END $$;

-- The leases among the given ones that had not ended; their messages are put back.
CREATE FUNCTION release(p_messages bigint[], p_attempts integer[])
RETURNS TABLE (message bigint, attempt integer, queue integer, receiver integer, watched boolean)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT * FROM knee_queue.put_back(ARRAY(
        SELECT m.id FROM unnest(p_messages, p_attempts) l (message, attempt)
        JOIN knee_queue.message m
          ON m.id = l.message AND m.attempts = l.attempt AND m.leased_until IS NOT NULL
        ORDER BY m.id FOR UPDATE OF m)) b
    WHERE b.queue IS NOT NULL;
END $$;

-- From here on, what keepers call: every middleware is one, and one at a time does it.

-- Puts back what was leased for too long: as many as asked for, unless there are no more.
CREATE FUNCTION end_leases(p_count integer)
RETURNS TABLE (message bigint, attempt integer, queue integer, receiver integer, watched boolean)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF pg_try_advisory_xact_lock(1263420742, 1) THEN
        RETURN QUERY SELECT * FROM knee_queue.put_back(ARRAY(
            SELECT m.id FROM knee_queue.message m WHERE m.leased_until <= now()
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
        LEFT JOIN knee_queue.queue q ON q.id = m.queue;
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
        FROM (SELECT l.id FROM knee_queue.watched_queue l
              WHERE l.id = ANY (p_queues) FOR UPDATE SKIP LOCKED) l
        WHERE w.id = l.id
        RETURNING w.id
    )
    SELECT array_agg(a.id) INTO watched FROM altered a;
    RETURN QUERY
    SELECT u.id, CASE WHEN u.id = ANY (watched) THEN true
        WHEN NOT EXISTS (SELECT FROM knee_queue.watched_queue w WHERE w.id = u.id) THEN false END
    FROM unnest(p_queues) u (id);
END $$;

-- The transactions that are sending to queues, or put something back there; a lock of 0 is of those who may do so in
-- any. Nobody waits for their lock: those who want to send would have to wait behind him.
CREATE FUNCTION senders(p_queues integer[]) RETURNS TABLE (queue integer, sender text)
LANGUAGE sql VOLATILE AS $$
    SELECT q.id, l.virtualtransaction FROM pg_locks l
    CROSS JOIN LATERAL unnest(CASE l.objid WHEN 0 THEN p_queues ELSE ARRAY[l.objid::integer] END) q (id)
    WHERE l.locktype = 'advisory' AND l.classid = 1263420741
      AND (l.objid = 0 OR l.objid = ANY (p_queues::oid[])) AND l.objsubid = 2
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
