-- The records of an insert. Calls in one list go forward together.
(
    SELECT unnest($2::bytea[]) AS id, unnest($3::bytea[]) AS version, unnest($4::smallint[]) AS state,
           unnest($5::bigint[]) AS due_in, unnest($6::bigint[]) AS reap_in, unnest($7::text[]) AS scheme,
           unnest($8::text[]) AS space, unnest($9::text[]) AS scope, unnest($10::text[]) AS key,
           unnest($11::bytea[]) AS data
  ) i
