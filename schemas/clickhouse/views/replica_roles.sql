-- Replicas with their role (as in `sources`).
CREATE VIEW {database}.replica_roles AS
SELECT model, replica, argMax(role, (incarnation, version)) AS role
FROM {database}.sources
GROUP BY model, replica
