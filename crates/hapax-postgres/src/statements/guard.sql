-- What has to be known, and set, before any record is touched.
guard AS MATERIALIZED (
  {guarding}
)
