#!/bin/sh
# Makes what docker-compose.yml needs and no repository holds: passwords in .secrets/, and .env. Safe to repeat:
# nothing that is there is changed. The passwords are random; Grafana's is printed by: cat .secrets/grafana-password
set -eu
cd "$(dirname "$0")/../.."

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

# keep NAME: write standard input to a secret that is not there yet. Others cannot enter the folder; inside a container
# the file must be readable, whoever the service runs as.
keep() {
    if [ -e ".secrets/$1" ]; then
        cat >/dev/null
        return
    fi
    cat >".secrets/$1"
    chmod 0444 ".secrets/$1"
    echo "made .secrets/$1"
}

# url USER PASSWORD-FILE
url() { printf 'postgresql+psycopg://%s:%s@postgres/streamer' "$1" "$(cat ".secrets/$2")"; }

umask 077
mkdir -p .secrets
for name in postgres-password migrator-password service-password grafana-password; do
    random | keep "$name"
done
# Empty: put the console's client secret here where the issuer gave one.
printf '' | keep oidc-client-secret
chmod 0644 .secrets/oidc-client-secret
url postgres postgres-password | keep admin-database-url
url migrator migrator-password | keep migrator-database-url
url service service-password | keep service-database-url

if [ ! -e .env ]; then
    # 16 random bytes in Kafka's notation; without a dash, for a leading one would read as an option.
    id=$(head -c 16 /dev/urandom | base64 | tr '+/' '__' | tr -d '=\n')
    sed "s|^KAFKA_CLUSTER_ID=\$|KAFKA_CLUSTER_ID=$id|" .env.example >.env
    echo "made .env"
fi
