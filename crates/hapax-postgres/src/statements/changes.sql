-- The records of an update, with the time. Calls in one list go forward together.
(
    SELECT g.now_ms, unnest($2::bytea[]) AS id, unnest($3::bytea[]) AS expect, unnest($4::bytea[]) AS version,
           unnest($5::smallint[]) AS state, unnest($6::bigint[]) AS due_in, unnest($7::bigint[]) AS reap_in,
           unnest($8::bytea[]) AS data
    FROM guard g
  ) n
