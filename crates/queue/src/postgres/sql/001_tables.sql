-- Knee's messages. Every access calls a function of the following files, in a transaction of its own.
-- crates/queue/src/postgres/calls.rs reads the answers. `problem` is 1 if the client `about` is missing, 2 if the queue
-- `about` is missing, and otherwise 0.
--
-- Clients and queues are looked up one by one: in scalar subqueries, behind OFFSET 0, or in an ARRAY. If few existed
-- when a plan was made, a join, an EXISTS that becomes a join, or a hash table would scan all of them.

-- Numbers are never used twice. If a send was answered before another send began, its message has the lower number. So
-- the sequences have no CACHE.
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

-- Deleted queues that may still have messages. Transactions from `known_to` on see the deletion.
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
-- A query for leases repeats the condition of the index that it needs. Otherwise it might scan all of the other index,
-- if the table had few leases when it was last analysed.
CREATE INDEX leased ON message (id) WHERE leased_until > '-infinity';
CREATE INDEX leased_until ON message (leased_until) WHERE leased_until < 'infinity';
