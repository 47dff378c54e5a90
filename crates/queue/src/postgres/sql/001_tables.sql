-- Knee's messages. Every access calls one of the functions in the files after this one, as a transaction of its own.
-- crates/queue/src/postgres/calls.rs reads their answers. `problem` is 0; 1, the client `about` is missing; or 2, the
-- queue `about` is missing.
--
-- Clients and queues are looked up one by one: in subqueries that are values, behind OFFSET 0, or in an ARRAY. A join, an
-- EXISTS that becomes one, or a hash table goes through all of them where few were known at planning.

-- Numbers are never used twice. A send takes its numbers one by one: a message whose send was answered before another's
-- began has the lower one. So no CACHE.
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
    -- Counts how often messages were put back: they may be below a floor.
    epoch bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE INDEX kept_for_a_time ON queue (id) WHERE retention IS NOT NULL;

-- Deleted queues whose messages are still there, and the first transaction that sees the deletion.
CREATE TABLE deleted_queue (
    id integer PRIMARY KEY,
    known_to xid8
);

-- No foreign keys: each message would lock the shared rows of its client and queue.
CREATE TABLE message (
    id bigint NOT NULL,
    queue integer NOT NULL,
    sender integer NOT NULL,
    receiver integer NOT NULL,
    arrived_at timestamptz NOT NULL,
    leased_until timestamptz,
    -- Its leases, and how many of them it had in other queues before it became a dead letter.
    attempts integer NOT NULL DEFAULT 0,
    attempts_elsewhere integer NOT NULL DEFAULT 0,
    content text NOT NULL
);

CREATE INDEX ready ON message (receiver, queue, id) WHERE leased_until IS NULL;
CREATE INDEX ready_from ON message (receiver, sender, id) WHERE leased_until IS NULL;
-- A query for leases repeats the condition of the index that it needs: otherwise it might go through all of the other
-- one, where few leases were known when the table was last analysed.
CREATE INDEX leased ON message (id) WHERE leased_until > '-infinity';
CREATE INDEX leased_until ON message (leased_until) WHERE leased_until < 'infinity';
