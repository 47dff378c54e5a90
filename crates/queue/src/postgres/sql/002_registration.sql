-- Clients and queues.

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
END $$;

-- Deletes a queue at once; sweep() removes its messages later.
CREATE FUNCTION delete_queue(p_queue integer, OUT problem integer, OUT about integer)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM knee_queue.queue q WHERE q.id = p_queue;
    IF NOT FOUND THEN
        problem := 2; about := p_queue; RETURN;
    END IF;
    problem := 0;
    INSERT INTO knee_queue.deleted_queue VALUES (p_queue);
END $$;
