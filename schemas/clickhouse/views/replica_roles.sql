-- Replicas with what settings or labels said last of their role: prefill, decode or both; empty where nobody says.
CREATE VIEW {database}.replica_roles AS
SELECT model, replica, argMax(role, (incarnation, version)) AS role
FROM {database}.sources
GROUP BY model, replica
