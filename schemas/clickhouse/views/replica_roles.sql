-- Replicas with their role: prefill, decode or both, as settings or labels said last; empty: nobody says.
CREATE VIEW {database}.replica_roles AS
SELECT model, replica, argMax(role, (incarnation, version)) AS role
FROM {database}.sources
GROUP BY model, replica
