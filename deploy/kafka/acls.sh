#!/usr/bin/env bash
# Who may do what on a Kafka cluster with an authorizer (authorizer.class.name=...StandardAuthorizer). Safe to repeat.
#
#   BOOTSTRAP=kafka-1:9093 COMMAND_CONFIG=admin.properties \
#   PUBLISHERS="User:chat" LABELLERS="User:labels" WORKERS="User:streamer" CONSUMERS="User:chat" OPERATORS="User:ana" \
#       deploy/kafka/acls.sh
#
# BOOTSTRAP        a broker, reached as an administrator
# COMMAND_CONFIG   client properties of that administrator; none on a listener that asks for nothing
# TOPIC_PREFIX     as kafka.topic_prefix of the workers (streamer.)
# GROUP_ID         as kafka.group_id of the workers (streamer)
# CONSUMER_GROUPS  what the names of the consumers' groups begin with (consumers.)
# KAFKA_ACLS       the tool (kafka-acls.sh)
#
# Principals, by spaces; a kind that is not named gets nothing:
# PUBLISHERS  write response batches, and nothing else
# LABELLERS   write labels, and nothing else
# WORKERS     workers, and whoever runs `streamer recalibrate` and `streamer threshold`: read the inputs, write the outputs
# CONSUMERS   read what was decided
# OPERATORS   make and check the topics, look into all of them, publish refused messages again
set -euo pipefail

: "${BOOTSTRAP:?name a broker: BOOTSTRAP=host:port}"
prefix=${TOPIC_PREFIX-streamer.}
group=${GROUP_ID:-streamer}
consumer_groups=${CONSUMER_GROUPS:-consumers.}
tool=("${KAFKA_ACLS:-kafka-acls.sh}" --bootstrap-server "$BOOTSTRAP")
if [ -n "${COMMAND_CONFIG:-}" ]; then tool+=(--command-config "$COMMAND_CONFIG"); fi

# The topics that each kind may write and read; `python -m docs.generate_events` writes these lists.
publishers_write=(responses)
labellers_write=(labels)
workers_write=(actions desk thresholds alerts checkpoints dead-letters)
workers_read=(responses labels thresholds)
consumers_read=(actions desk thresholds alerts checkpoints)

# allow "PRINCIPALS" "OPERATIONS" RESOURCE...
allow() {
    local words=() principal operation
    for principal in $1; do words+=(--allow-principal "$principal"); done
    if [ "${#words[@]}" -eq 0 ]; then return; fi
    for operation in $2; do words+=(--operation "$operation"); done
    shift 2
    "${tool[@]}" --add "${words[@]}" "$@"
}

# topics NAME...: the options for our topics of these names
topics() {
    local name
    options=()
    for name; do options+=(--topic "$prefix$name"); done
}

topics "${publishers_write[@]}"
allow "${PUBLISHERS:-}" "Write Describe" "${options[@]}"

topics "${labellers_write[@]}"
allow "${LABELLERS:-}" "Write Describe" "${options[@]}"

topics "${workers_read[@]}"
allow "${WORKERS:-}" "Read Describe" "${options[@]}" --group "$group"
# The thresholds topic only says that there is news: a policy itself is read from the database.
topics "${workers_write[@]}"
allow "${WORKERS:-}" "Write Describe" "${options[@]}"

topics "${consumers_read[@]}"
allow "${CONSUMERS:-}" "Read Describe" "${options[@]}"
allow "${CONSUMERS:-}" "Read" --group "$consumer_groups" --resource-pattern-type prefixed

allow "${OPERATORS:-}" "Create Alter AlterConfigs Describe DescribeConfigs Read Write" \
    --topic "${prefix:-*}" --resource-pattern-type "$([ -n "$prefix" ] && echo prefixed || echo literal)"
