-- Sends one message. The transaction takes its number before the message does: horizon() relies on that. The INSERT
-- takes the message's number once it has the table's lock: if it waited with a number, removers would see later ones.
CREATE FUNCTION send(
    p_sender integer, p_receiver integer, p_queue integer, p_content text,
    OUT problem integer, OUT about integer, OUT id bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    sender_there boolean;
    receiver_there boolean;
    queue_there boolean;
BEGIN
    -- The call takes the transaction's number, and is never NULL. PERFORM would cost another statement.
    IF pg_current_xact_id() IS NULL THEN
        RETURN;
    END IF;
    SELECT p_sender = 0 OR EXISTS (SELECT FROM knee_queue.client c WHERE c.id = p_sender),
           p_receiver = 0 OR EXISTS (SELECT FROM knee_queue.client c WHERE c.id = p_receiver),
           EXISTS (SELECT FROM knee_queue.queue q WHERE q.id = p_queue)
    INTO sender_there, receiver_there, queue_there;
    problem := 0;
    IF NOT sender_there THEN
        problem := 1; about := p_sender; RETURN;
    ELSIF NOT receiver_there THEN
        problem := 1; about := p_receiver; RETURN;
    ELSIF NOT queue_there THEN
        problem := 2; about := p_queue; RETURN;
    END IF;
    INSERT INTO knee_queue.message AS m (id, queue, sender, receiver, arrived_at, content)
    VALUES (nextval('knee_queue.message_id'), p_queue, p_sender, p_receiver, now(), p_content)
    RETURNING m.id INTO send.id;
END $$;

-- Sends the messages of several calls; of each call, all or none. The messages of a call have its number in p_calls,
-- and follow each other. Returns a row for each message sent, and a row for each refused call.
CREATE FUNCTION send_all(
    p_calls integer[], p_senders integer[], p_receivers integer[], p_queues integer[], p_contents text[])
RETURNS TABLE (call integer, problem integer, about integer, id bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_current_xact_id();
    RETURN QUERY
    WITH item AS MATERIALIZED (
        SELECT u.*,
            CASE WHEN u.sender <> 0 AND (SELECT c.id FROM knee_queue.client c WHERE c.id = u.sender) IS NULL
                    THEN 1
                 WHEN u.receiver <> 0
                    AND (SELECT c.id FROM knee_queue.client c WHERE c.id = u.receiver) IS NULL THEN 3
                 WHEN (SELECT q.id FROM knee_queue.queue q WHERE q.id = u.queue) IS NULL THEN 2
                 ELSE 0 END AS wrong
        FROM unnest(p_calls, p_senders, p_receivers, p_queues, p_contents)
             WITH ORDINALITY u (n, sender, receiver, queue, content, place)
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
    SELECT m.n, 0, NULL::integer, m.number FROM numbered m
    UNION ALL
    SELECT r.n, r.wrong, r.what, NULL FROM refused r;
END $$;

-- Notifies listening servers of arrivals: "NAME:QUEUE RECEIVER,...", with the name of the notifying server.
CREATE FUNCTION notify_arrivals(p_arrivals text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_notify('knee_queue', p_arrivals);
END $$;
