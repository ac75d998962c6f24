# Writes a complete dump of the ledger or none; all dumps except the newest $KEEP are deleted.
# PGHOST, PGUSER, PGDATABASE and PGPASSWORD name the database, $BACKUPS the folder.
set -eu
name="$BACKUPS/queuectl-$(date -u +%Y%m%dT%H%M%SZ).dump"
trap 'rm -f "$name.part"' EXIT
pg_dump --format=custom --no-owner --schema=queuectl --file="$name.part"
# A dump that cannot be read is discarded.
pg_restore --list "$name.part" >/dev/null
mv "$name.part" "$name"
echo "$name $(wc -c <"$name") bytes"
ls -1 "$BACKUPS"/queuectl-*.dump | sort -r | tail -n "+$((KEEP + 1))" | while read -r old; do
  rm -f "$old"
  echo "deleted $old"
done
