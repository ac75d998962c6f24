# Replaces the ledger with the newest dump, or with the one that $DUMP names: all or nothing.
# Stop the controller and REST first.
set -eu
newest=$(ls -1 "$BACKUPS"/queuectl-*.dump | sort | tail -n 1)
dump=${DUMP:-$newest}
echo "restoring $dump"
statements="$BACKUPS/.restore.sql"
trap 'rm -f "$statements"' EXIT
pg_restore --no-owner --no-privileges --file="$statements" "$dump"
# The whole schema: pg_restore's own --clean cannot detach partitions.
psql --quiet --no-psqlrc --set=ON_ERROR_STOP=1 --output=/dev/null --single-transaction \
  --command='DROP SCHEMA IF EXISTS queuectl CASCADE' --file="$statements"
echo "restored $dump"
