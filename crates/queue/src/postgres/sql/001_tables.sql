-- Knee's messages. Every access is a call of one of the functions in the files behind this one, which is a
-- transaction of its own. What they answer is read by crates/queue/src/postgres/calls.rs. What an answer's
-- `problem` says: 0 nothing, 1 there is no such client, 2 there is no such queue; and `about`, which.
--
-- Clients and queues are looked up by their numbers, one by one: in subqueries that are values, behind OFFSET 0, or as
-- those in an ARRAY. A join, or EXISTS, which may be one, or a hash table, goes through all of them where few were known
-- when it was planned.

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
-- Who looks for leases says so in the words of the one index that he needs: otherwise he might look through all of the
-- other one, where few leases were known when the table was last analysed.
CREATE INDEX leased ON message (id) WHERE leased_until > '-infinity';
CREATE INDEX leased_until ON message (leased_until) WHERE leased_until < 'infinity';
