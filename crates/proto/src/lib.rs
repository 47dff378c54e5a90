//! Sans-IO codec of the memcached text protocol, classic and meta.
