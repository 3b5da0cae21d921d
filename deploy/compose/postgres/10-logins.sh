#!/bin/sh
# Run by the image of PostgreSQL when the database is made: two users, neither of whom may do what an administrator may.
# `streamer db roles` grants what the roles may do; docs/security.md tells who needs which.
set -eu
secrets=${SECRETS:-/run/secrets}

psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --username=postgres --dbname=streamer \
    --set=migrator="$(cat "$secrets/migrator-password")" --set=service="$(cat "$secrets/service-password")" <<'SQL'
CREATE ROLE streamer_migrate NOLOGIN;
CREATE ROLE streamer_app NOLOGIN;
CREATE ROLE streamer_read NOLOGIN;
CREATE ROLE migrator LOGIN PASSWORD :'migrator' IN ROLE streamer_migrate;
CREATE ROLE service LOGIN PASSWORD :'service' IN ROLE streamer_app;
SQL
