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

-- Queues that are gone and whose messages are not, yet.
CREATE TABLE deleted_queue (id INTEGER PRIMARY KEY);

CREATE TABLE message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue INTEGER NOT NULL,
    sender INTEGER NOT NULL,
    receiver INTEGER NOT NULL,
    arrived_at_us INTEGER NOT NULL,
    leased_until_us INTEGER,
    -- Leases it has had, and how many of them elsewhere, before it came to the dead letters.
    attempts INTEGER NOT NULL DEFAULT 0,
    attempts_elsewhere INTEGER NOT NULL DEFAULT 0,
    content TEXT NOT NULL
);

-- Each ends with the message's number, in whose order it is read.
CREATE INDEX ready ON message (receiver, queue) WHERE leased_until_us IS NULL;
CREATE INDEX ready_from ON message (receiver, sender) WHERE leased_until_us IS NULL;
CREATE INDEX leased ON message (leased_until_us) WHERE leased_until_us IS NOT NULL;
