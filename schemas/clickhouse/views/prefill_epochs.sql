-- What the settings say of prefill in a range, by model: `epoch` 0 is in force at its start, and each change begins
-- another one. The first settings of a model also hold for all time before.
CREATE VIEW {database}.prefill_epochs AS
SELECT
    model,
    toUInt64(number - 1) AS epoch,
    number = length(epochs) AS last,
    one.1 AS since,
    one.2 AS prefill_tokens_per_second,
    one.3 AS gpus_per_replica,
    one.4 AS gpu_hour_price,
    one.5 AS currency
FROM
(
    SELECT
        model,
        arraySort(
            one -> one.1,
            groupArray((since, prefill_tokens_per_second, gpus_per_replica, gpu_hour_price, currency))
        ) AS all,
        arrayFilter(one -> one.1 <= {from}, all) AS before,
        arrayFilter(one -> one.1 > {from} AND one.1 <= {to}, all) AS inside,
        arrayConcat([if(empty(before), all[1], before[-1])], inside) AS epochs
    FROM {database}.prefill_settings FINAL
    GROUP BY model
)
ARRAY JOIN epochs AS one, arrayEnumerate(epochs) AS number
