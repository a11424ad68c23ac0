-- Small columns of what is unfinished or due and comes after $1, $2. `g` says how far.
SELECT coalesce(r.due_at, -1) AS place, r.id, r.state, r.scope, r.key, octet_length(r.data) AS bytes
      FROM {schema}.record r
      WHERE (r.due_at IS NOT NULL OR r.state < 5)
        AND (coalesce(r.due_at, -1), r.id) > ($1::bigint, $2::bytea)
        AND coalesce(r.due_at, -1) <= g.due_max
