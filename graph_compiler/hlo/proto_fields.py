"""The field table of the HLO protos: every message that a graph consists of, as data.

Source: the public schema, github.com/openxla/xla, xla/service/hlo.proto and xla/xla_data.proto,
as of jaxlib 0.10.2.
A field that is not listed (newer than the table, or reserved) survives as unknown bytes.

Types of fields: `int64`, `int32`, `bool`, `float`, `double`, `string`, `bytes`; the name of a
message; the name of an enumeration; `map`, from string to string; `map<MESSAGE>`, from int64;
`raw`: packed fixed-width (or one-byte) elements, read in one piece as the bytes that they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_DEFAULTS: dict[str, Any] = {
    "int64": 0,
    "int32": 0,
    "uint32": 0,
    "uint64": 0,
    "bool": False,
    "float": 0.0,
    "double": 0.0,
    "string": "",
    "bytes": b"",
    "raw": b"",
}


class Field(NamedTuple):
    """A field of a message. `default`: what its absence means; None for messages."""

    number: int
    name: str
    type: str
    repeated: bool
    default: Any


ENUMERATIONS: dict[str, tuple[str, ...]] = {
    # Values in order from 0. A number beyond them stays a number.
    "CustomCallSchedule": ("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"),
    "CustomCallApiVersion": (
        "API_VERSION_UNSPECIFIED",
        "API_VERSION_ORIGINAL",
        "API_VERSION_STATUS_RETURNING",
        "API_VERSION_STATUS_RETURNING_UNIFIED",
        "API_VERSION_TYPED_FFI",
    ),
    "AliasKind": ("UNDEFINED_ALIAS", "MAY_ALIAS", "MUST_ALIAS"),
    "PaddingType": ("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME"),
    "FftType": ("FFT", "IFFT", "RFFT", "IRFFT"),
    "RandomDistribution": ("RNG_INVALID", "RNG_UNIFORM", "RNG_NORMAL"),
    "RandomAlgorithm": ("RNG_DEFAULT", "RNG_THREE_FRY", "RNG_PHILOX"),
    "Transpose": ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    "ShardingType": (
        "REPLICATED",
        "MAXIMAL",
        "TUPLE",
        "OTHER",
        "MANUAL",
        "UNKNOWN",
        "UNREDUCED",
    ),
    "ShardGroupType": ("AS", "LIKE"),
    "TriState": ("TRI_STATE_UNSPECIFIED", "TRI_STATE_TRUE", "TRI_STATE_FALSE"),
    "AccuracyMode": ("DEFAULT", "HIGHEST"),
    "Precision": ("DEFAULT", "HIGH", "HIGHEST"),
    "DotAlgorithm": (
        "ALG_UNSET",
        "ALG_DOT_ANY_F8_ANY_F8_F32",
        "ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM",
        "ALG_DOT_F16_F16_F16",
        "ALG_DOT_F16_F16_F32",
        "ALG_DOT_BF16_BF16_BF16",
        "ALG_DOT_BF16_BF16_F32",
        "ALG_DOT_BF16_BF16_F32_X3",
        "ALG_DOT_BF16_BF16_F32_X6",
        "ALG_DOT_TF32_TF32_F32",
        "ALG_DOT_TF32_TF32_F32_X3",
        "ALG_DOT_F32_F32_F32",
        "ALG_DOT_F64_F64_F64",
        "ALG_DOT_BF16_BF16_F32_X9",
    ),
}
"""Enumerations by name, but for the primitive types, which `graph_compiler.hlo.types` lists."""


def _fields(*rows: tuple[int, str]) -> tuple[Field, ...]:
    """Fields from (number, "type name") and, with a star behind the type, repeated ones."""
    fields = []
    for number, declaration in rows:
        kind, name = declaration.split()
        repeated = kind.endswith("*")
        kind = kind.rstrip("*")
        default: Any = () if repeated else _DEFAULTS.get(kind)
        if kind in ENUMERATIONS and not repeated:
            default = ENUMERATIONS[kind][0]
        if kind.startswith("map"):
            default = {}
        fields.append(Field(number, name, kind, repeated, default))
    return tuple(fields)


_GRAPH: dict[str, tuple[Field, ...]] = {
    "HloModuleProto": _fields(
        (1, "string name"),
        (2, "string entry_computation_name"),
        (3, "HloComputationProto* computations"),
        (4, "ProgramShapeProto host_program_shape"),
        (5, "int64 id"),
        (6, "int64 entry_computation_id"),
        (7, "HloScheduleProto schedule"),
        (8, "HloInputOutputAliasProto input_output_alias"),
        (10, "CrossProgramPrefetch* cross_program_prefetches"),
        (11, "bool is_dynamic"),
        (12, "OpSharding spmd_output_sharding"),
        (14, "OpSharding* spmd_parameters_shardings"),
        (15, "DeviceAssignmentProto device_assignment"),
        (16, "bool use_auto_spmd_partitioning"),
        (17, "StackFrameIndexProto stack_frame_index"),
        (18, "HloBufferDonorProto buffer_donor"),
        (19, "FrontendAttributes frontend_attributes"),
    ),
    "HloComputationProto": _fields(
        (1, "string name"),
        (2, "HloInstructionProto* instructions"),
        (4, "ProgramShapeProto program_shape"),
        (5, "int64 id"),
        (6, "int64 root_id"),
        (7, "bool is_fusion_computation"),
        (8, "string execution_thread"),
    ),
    "HloInstructionProto": _fields(
        (1, "string name"),
        (2, "string opcode"),
        (3, "ShapeProto shape"),
        (7, "OpMetadata metadata"),
        (8, "LiteralProto literal"),
        (9, "int64 parameter_number"),
        (11, "string fusion_kind"),
        (13, "int64 tuple_index"),
        (14, "int64* dimensions"),
        (15, "Window window"),
        (16, "ConvolutionDimensionNumbers convolution_dimension_numbers"),
        (17, "SliceDimensions* slice_dimensions"),
        (18, "int32 exponent_bits"),
        (19, "int32 mantissa_bits"),
        (20, "int64* dynamic_slice_sizes"),
        (21, "PaddingConfig padding_config"),
        (22, "bytes outfeed_config"),
        (23, "RandomDistribution distribution"),
        (24, "float epsilon"),
        (25, "int64 feature_index"),
        (26, "int64 channel_id"),
        (27, "bytes infeed_config"),
        (28, "string custom_call_target"),
        (29, "ShapeProto outfeed_shape"),
        (30, "DotDimensionNumbers dot_dimension_numbers"),
        (31, "FftType fft_type"),
        (32, "int64* fft_length"),
        (33, "GatherDimensionNumbers gather_dimension_numbers"),
        (34, "int64* gather_slice_sizes"),
        (35, "int64 id"),
        (36, "int64* operand_ids"),
        (37, "int64* control_predecessor_ids"),
        (38, "int64* called_computation_ids"),
        (40, "OpSharding sharding"),
        (43, "bytes backend_config"),
        (45, "int64 all_reduce_id"),
        (47, "bool is_host_transfer"),
        (48, "ScatterDimensionNumbers scatter_dimension_numbers"),
        (49, "ReplicaGroup* replica_groups"),
        (50, "int64 feature_group_count"),
        (51, "PrecisionConfig precision_config"),
        (52, "SourceTarget* source_target_pairs"),
        (54, "OpSharding domain_entry_sharding"),
        (55, "OpSharding domain_exit_sharding"),
        (56, "bool constrain_layout"),
        (57, "ShapeProto* operand_shapes_with_layout"),
        (58, "int64 batch_group_count"),
        (59, "TriangularSolveOptions triangular_solve_options"),
        (60, "bool is_stable"),
        (61, "ParameterReplication parameter_replication"),
        (62, "CholeskyOptions cholesky_options"),
        (63, "string comparison_direction"),
        (65, "bool custom_call_has_side_effect"),
        (66, "int64 delta"),
        (67, "bool indices_are_sorted"),
        (68, "FrontendAttributes frontend_attributes"),
        (69, "bool unique_indices"),
        (70, "RandomAlgorithm rng_algorithm"),
        (71, "bool use_global_device_ids"),
        (72, "string comparison_type"),
        (73, "bool is_cross_program_prefetch"),
        (74, "OutputOperandAliasing* output_operand_aliasing"),
        (75, "PaddingType padding_type"),
        (76, "CustomCallSchedule custom_call_schedule"),
        (77, "CustomCallApiVersion custom_call_api_version"),
        (79, "string async_execution_thread"),
        (80, "int32 cross_program_prefetch_index"),
        (81, "int64 k"),
        (82, "StatisticsViz statistics_viz"),
        (85, "bool largest"),
        (86, "SparsityDescriptor* dot_sparsity"),
        (87, "CollectiveDeviceListProto collective_device_list"),
        (88, "OriginalValueProto original_value"),
        (89, "bool is_composite"),
        (90, "RaggedDotDimensionNumbers ragged_dot_dimension_numbers"),
        (91, "ResultAccuracy result_accuracy"),
        (92, "IotaReplicaGroupListProto iota_collective_device_list"),
        (93, "MeshAxesReplicaGroupListProto mesh_axes_replica_group_list"),
        (94, "bool is_reverse"),
        (95, "int64 num_carries"),
        (96, "TriState is_associative"),
        (97, "int32 conv_kind"),
        (98, "SparsityConfig sparsity_config"),
    ),
}

_SHAPES: dict[str, tuple[Field, ...]] = {
    "ShapeProto": _fields(
        (2, "int32 element_type"),
        (3, "int64* dimensions"),
        (4, "ShapeProto* tuple_shapes"),
        (5, "LayoutProto layout"),
        (6, "bool* is_dynamic_dimension"),
    ),
    "LayoutProto": _fields(
        (1, "int64* minor_to_major"),
        (6, "TileProto* tiles"),
        (7, "int64 element_size_in_bits"),
        (8, "int64 memory_space"),
        (9, "int32* dim_level_types"),
        (10, "ShapeProto physical_shape"),
        (11, "int32 index_primitive_type"),
        (12, "int32 pointer_primitive_type"),
        (13, "bool* dim_unique"),
        (14, "bool* dim_ordered"),
        (15, "int64 dynamic_shape_metadata_prefix_bytes"),
        (16, "int64 tail_padding_alignment_in_elements"),
        (17, "SplitConfigProto* split_configs"),
    ),
    "TileProto": _fields((1, "int64* dimensions")),
    "SplitConfigProto": _fields((1, "int64 dimension"), (2, "int64* split_indices")),
    "ProgramShapeProto": _fields(
        (1, "ShapeProto* parameters"), (2, "ShapeProto result"), (3, "string* parameter_names")
    ),
    "LiteralProto": _fields(
        (1, "ShapeProto shape"),
        (2, "raw preds"),
        (3, "bytes u8s"),
        (4, "int32* s32s"),
        (5, "int64* s64s"),
        (6, "uint32* u32s"),
        (7, "uint64* u64s"),
        (8, "raw f32s"),
        (9, "raw f64s"),
        (10, "LiteralProto* tuple_literals"),
        (11, "bytes f16s"),
        (12, "raw c64s"),
        (13, "bytes bf16s"),
        (15, "bytes s8s"),
        (16, "bytes u16s"),
        (17, "bytes s16s"),
        (18, "raw c128s"),
        (19, "bytes f8e5m2s"),
        (20, "bytes f8e4m3fns"),
        (21, "bytes s4s"),
        (22, "bytes u4s"),
        (23, "bytes f8e4m3b11fnuzs"),
        (24, "bytes f8e5m2fnuzs"),
        (25, "bytes f8e4m3fnuzs"),
        (26, "bytes s2s"),
        (27, "bytes u2s"),
        (28, "bytes f8e4m3s"),
        (29, "bytes f8e3m4s"),
        (30, "bytes s1s"),
        (31, "bytes u1s"),
        (32, "bytes f4e2m1fns"),
        (33, "bytes f8e8m0fnus"),
    ),
}

_OPERATIONS: dict[str, tuple[Field, ...]] = {
    "SliceDimensions": _fields((1, "int64 start"), (2, "int64 limit"), (3, "int64 stride")),
    "PaddingConfig": _fields((1, "PaddingConfigDimension* dimensions")),
    "PaddingConfigDimension": _fields(
        (1, "int64 edge_padding_low"),
        (2, "int64 edge_padding_high"),
        (3, "int64 interior_padding"),
    ),
    "Window": _fields((1, "WindowDimension* dimensions")),
    "WindowDimension": _fields(
        (1, "int64 size"),
        (2, "int64 stride"),
        (3, "int64 padding_low"),
        (4, "int64 padding_high"),
        (5, "int64 window_dilation"),
        (6, "int64 base_dilation"),
        (7, "bool window_reversal"),
    ),
    "GatherDimensionNumbers": _fields(
        (1, "int64* offset_dims"),
        (2, "int64* collapsed_slice_dims"),
        (3, "int64* start_index_map"),
        (4, "int64 index_vector_dim"),
        (5, "int64* operand_batching_dims"),
        (6, "int64* start_indices_batching_dims"),
    ),
    "ScatterDimensionNumbers": _fields(
        (1, "int64* update_window_dims"),
        (2, "int64* inserted_window_dims"),
        (3, "int64* scatter_dims_to_operand_dims"),
        (4, "int64 index_vector_dim"),
        (5, "int64* input_batching_dims"),
        (6, "int64* scatter_indices_batching_dims"),
    ),
    "ConvolutionDimensionNumbers": _fields(
        (3, "int64 kernel_input_feature_dimension"),
        (4, "int64 kernel_output_feature_dimension"),
        (6, "int64* kernel_spatial_dimensions"),
        (7, "int64 input_batch_dimension"),
        (8, "int64 input_feature_dimension"),
        (9, "int64 output_batch_dimension"),
        (10, "int64 output_feature_dimension"),
        (11, "int64* input_spatial_dimensions"),
        (12, "int64* output_spatial_dimensions"),
    ),
    "DotDimensionNumbers": _fields(
        (1, "int64* lhs_contracting_dimensions"),
        (2, "int64* rhs_contracting_dimensions"),
        (3, "int64* lhs_batch_dimensions"),
        (4, "int64* rhs_batch_dimensions"),
    ),
    "RaggedDotDimensionNumbers": _fields(
        (1, "DotDimensionNumbers dot_dimension_numbers"),
        (2, "int64* lhs_ragged_dimensions"),
        (3, "int64* rhs_group_dimensions"),
    ),
    # Of the sparsity of convolutions only its presence is known here; the rest stays unknown bytes.
    "SparsityConfig": (),
    "SparsityDescriptor": _fields((1, "int32 type"), (2, "int32 index"), (3, "int32 dimension")),
    "TriangularSolveOptions": _fields(
        (1, "bool left_side"),
        (2, "bool lower"),
        (3, "bool unit_diagonal"),
        (4, "Transpose transpose_a"),
    ),
    "CholeskyOptions": _fields((1, "bool lower")),
    "PrecisionConfig": _fields((1, "Precision* operand_precision"), (2, "DotAlgorithm algorithm")),
    "ResultAccuracy": _fields((1, "AccuracyMode mode"), (2, "Tolerance tolerance")),
    "Tolerance": _fields((1, "double atol"), (2, "double rtol"), (3, "int64 ulps")),
    "ParameterReplication": _fields((1, "bool* replicated_at_leaf_buffers")),
    "OutputOperandAliasing": _fields(
        (1, "int64* output_shape_index"),
        (2, "int64 operand_index"),
        (3, "int64* operand_shape_index"),
    ),
}

_DEVICES: dict[str, tuple[Field, ...]] = {
    "ReplicaGroup": _fields((1, "int64* replica_ids")),
    "IotaReplicaGroupListProto": _fields(
        (1, "int64 num_replica_groups"),
        (2, "int64 num_devices_per_group"),
        (3, "int64* iota_reshape_dims"),
        (4, "int32* iota_transpose_perm"),
    ),
    "CollectiveDeviceListProto": _fields(
        (1, "ReplicaGroup* replica_groups"),
        (2, "IotaReplicaGroupListProto iota_replica_group_list"),
    ),
    "MeshAxesReplicaGroupListProto": _fields((1, "MeshProto mesh"), (2, "AxisRefProto* axes")),
    "SourceTarget": _fields((1, "int64 source"), (2, "int64 target")),
    "DeviceAssignmentProto": _fields(
        (1, "int32 replica_count"),
        (2, "int32 computation_count"),
        (3, "ComputationDevice* computation_devices"),
    ),
    "ComputationDevice": _fields((1, "int64* replica_device_ids")),
    "OpSharding": _fields(
        (1, "ShardingType type"),
        (2, "ShapeProto tile_shape"),
        (3, "int64* tile_assignment_dimensions"),
        (4, "int64* tile_assignment_devices"),
        (5, "OpSharding* tuple_shardings"),
        (6, "bool replicate_on_last_tile_dim"),
        (7, "OpMetadata* metadata"),
        (8, "ShardingType* last_tile_dims"),
        (9, "int64* iota_reshape_dims"),
        (10, "int32* iota_transpose_perm"),
        (11, "bool is_shard_group"),
        (12, "int64 shard_group_id"),
        (13, "ShardGroupType shard_group_type"),
        (14, "NamedShardingProto named_sharding"),
    ),
    "NamedShardingProto": _fields(
        (1, "NamedShardingProto* tuple_shardings"),
        (2, "MeshProto mesh"),
        (3, "DimensionSharding* dim_shardings"),
        (4, "AxisRefProto* replicated_axes"),
        (5, "AxisRefProto* unreduced_axes"),
        (6, "OpMetadata* metadata"),
        (7, "AxisRefProto* manual_axes"),
    ),
    "DimensionSharding": _fields((1, "AxisRefProto* axes"), (2, "bool is_closed")),
    "AxisRefProto": _fields((1, "int64 mesh_axis_index"), (2, "SubAxis sub_axis_info")),
    "SubAxis": _fields((1, "int64 pre_size"), (2, "int64 size")),
    "MeshProto": _fields(
        (1, "MeshAxis* axes"), (2, "int64* device_ids"), (3, "IotaTransform iota_transform")
    ),
    "IotaTransform": _fields((1, "int64* reshape_dims"), (2, "int64* transpose_perm")),
    "MeshAxis": _fields((1, "string name"), (2, "int64 size")),
}

_ANNOTATIONS: dict[str, tuple[Field, ...]] = {
    "OpMetadata": _fields(
        (1, "string op_type"),
        (2, "string op_name"),
        (3, "string source_file"),
        (4, "int32 source_line"),
        (5, "int32* profile_type"),
        (8, "int64 size_of_generated_code_in_bytes"),
        (9, "int64 size_of_memory_working_set_in_bytes"),
        (12, "string deduplicated_name"),
        (15, "int32 stack_frame_id"),
        (16, "string scheduling_name"),
        (17, "int32 source_end_line"),
        (18, "int32 source_column"),
        (19, "int32 source_end_column"),
    ),
    "FrontendAttributes": _fields((1, "map map")),
    "StatisticsViz": _fields((1, "int64 stat_index_to_visualize"), (2, "Statistic* statistics")),
    "Statistic": _fields((1, "string stat_name"), (2, "double stat_val")),
    "OriginalValueProto": _fields(
        (1, "OriginalValueElementProto* elements"), (2, "bool is_synthetic_call")
    ),
    "OriginalValueElementProto": _fields(
        (1, "int64* shape_index"), (2, "OriginalArrayProto original_array")
    ),
    "OriginalArrayProto": _fields((1, "string instruction_name"), (2, "int64* shape_index")),
    "HloInputOutputAliasProto": _fields((1, "AliasEntryProto* entries")),
    "AliasEntryProto": _fields(
        (1, "int64* output_shape_index"),
        (2, "int64 parameter_number"),
        (3, "int64* parameter_shape_index"),
        (4, "AliasKind kind"),
    ),
    "HloBufferDonorProto": _fields((1, "BufferDonorEntryProto* entries")),
    "BufferDonorEntryProto": _fields(
        (1, "int64 parameter_number"), (2, "int64* parameter_shape_index")
    ),
    "CrossProgramPrefetch": _fields(
        (1, "int64 parameter"), (2, "int64* index"), (3, "int64 offset")
    ),
    "HloScheduleProto": _fields((1, "map<InstructionSequence> sequences")),
    "InstructionSequence": _fields((1, "int64* instruction_ids")),
    "StackFrameIndexProto": _fields(
        (1, "string* file_names"),
        (2, "string* function_names"),
        (3, "FileLocation* file_locations"),
        (4, "StackFrame* stack_frames"),
    ),
    "FileLocation": _fields(
        (1, "int32 file_name_id"),
        (2, "int32 function_name_id"),
        (3, "int32 line"),
        (4, "int32 column"),
        (5, "int32 end_line"),
        (6, "int32 end_column"),
    ),
    "StackFrame": _fields((1, "int32 file_location_id"), (2, "int32 parent_frame_id")),
}

MESSAGES: dict[str, tuple[Field, ...]] = _GRAPH | _SHAPES | _OPERATIONS | _DEVICES | _ANNOTATIONS
"""The fields of every message by its name."""
