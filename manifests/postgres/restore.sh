# Puts the newest dump, or the one that $DUMP names, in the place of the ledger as it is: all or nothing.
# Stop the controller and REST first.
set -eu
newest=$(ls -1 "$BACKUPS"/queuectl-*.dump | sort | tail -n 1)
dump=${DUMP:-$newest}
echo "restoring $dump"
pg_restore --clean --if-exists --no-owner --single-transaction --exit-on-error --dbname="$PGDATABASE" "$dump"
echo "restored $dump"
