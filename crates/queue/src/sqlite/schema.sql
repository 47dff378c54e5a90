-- Knee's messages, version 1. Numbers are never used twice, so AUTOINCREMENT.
CREATE TABLE middleware (id INTEGER PRIMARY KEY AUTOINCREMENT);

CREATE TABLE client (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    middleware INTEGER NOT NULL
);

CREATE TABLE queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    creator INTEGER NOT NULL,
    dead_letters INTEGER,
    attempts_max INTEGER NOT NULL,
    retention_us INTEGER
);

CREATE INDEX kept_for_a_time ON queue (id) WHERE retention_us IS NOT NULL;

-- Deleted queues that may still have messages.
CREATE TABLE deleted_queue (id INTEGER PRIMARY KEY);

CREATE TABLE message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue INTEGER NOT NULL,
    sender INTEGER NOT NULL,
    receiver INTEGER NOT NULL,
    arrived_at_us INTEGER NOT NULL,
    leased_until_us INTEGER,
    -- Its leases, and how many of them it had in other queues before it became a dead letter.
    attempts INTEGER NOT NULL DEFAULT 0,
    attempts_elsewhere INTEGER NOT NULL DEFAULT 0,
    content TEXT NOT NULL
);

-- SQLite appends the message's number to each index, so messages are read in the order of their numbers.
CREATE INDEX ready ON message (receiver, queue) WHERE leased_until_us IS NULL;
CREATE INDEX ready_from ON message (receiver, sender) WHERE leased_until_us IS NULL;
CREATE INDEX leased ON message (leased_until_us) WHERE leased_until_us IS NOT NULL;
