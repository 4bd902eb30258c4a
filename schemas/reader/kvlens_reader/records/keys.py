"""What names a row of each table; made of the sort keys by `python -m pipeline.generated`."""

KEYS: dict[str, tuple[str, ...]] = {'occupancy_10s': ('model', 'replica', 'dp_rank', 'medium', 'group_idx', 'block_size', 'window'),
 'flow_10s': ('model', 'replica', 'dp_rank', 'medium', 'group_idx', 'window'),
 'stream_health_10s': ('model', 'replica', 'dp_rank', 'window'),
 'objects_10s': ('model', 'replica', 'dp_rank', 'medium', 'group_idx', 'window'),
 'engine_counters': ('model', 'replica', 'dp_rank', 'time'),
 'fills_10s': ('hash_domain', 'model', 'replica', 'dp_rank', 'group_idx', 'shard', 'window'),
 'capacity_curve_10s': ('hash_domain',
                        'model',
                        'replica',
                        'dp_rank',
                        'group_idx',
                        'shard',
                        'window'),
 'choices': ('toStartOfHour(time)', 'model', 'replica', 'request_id')}
