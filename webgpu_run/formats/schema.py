"""The FlatBuffer layouts of .pte, .ptd and VkGraph files as data, shared by the reader and the writer.

One line per table, with the fields in slot order. `[x]` is a vector of x. `blob` is a byte vector that is read as
(offset, length) and never copied. `=n` gives a default. A field whose type is a union takes two slots: tag and table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

SCALARS = {"bool": "?", "i8": "b", "u8": "B", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f64": "d"}
SIZES = {"bool": 1, "i8": 1, "u8": 1, "i32": 4, "u32": 4, "i64": 8, "u64": 8, "f64": 8}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table. `type` names a scalar, table or union; for a vector, the type of its elements."""

    name: str
    slot: int
    kind: Literal["scalar", "string", "blob", "table", "union", "scalars", "tables"]
    type: str
    default: Any


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    fields: tuple[Field, ...]
    slots: int


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A set of tables and unions. `unions` lists table names by tag; tag 0 means no value."""

    tables: dict[str, Table]
    unions: dict[str, tuple[str, ...]]


def parse(text: str) -> TableSchema:
    """Parse a schema in the notation described at the top of this module."""
    lines = [line.split() for line in text.strip().splitlines()]
    unions = {words[1]: ("", *words[2:]) for words in lines if words[0] == "union"}
    tables = {words[0]: _table(words, unions) for words in lines if words[0] != "union"}
    return TableSchema(tables, unions)


def _table(words: list[str], unions: dict[str, tuple[str, ...]]) -> Table:
    fields = []
    slot = 0
    for word in words[1:]:
        name, _, spelled = word.partition(":")
        kind, _, default = spelled.partition("=")
        field = _field(name, slot, kind, int(default or 0), unions)
        fields.append(field)
        slot += 2 if field.kind == "union" else 1
    return Table(words[0], tuple(fields), slot)


def _field(name: str, slot: int, kind: str, default: int, unions: dict[str, tuple[str, ...]]) -> Field:
    if kind.startswith("["):
        item = kind[1:-1]
        return Field(name, slot, "scalars" if item in SCALARS else "tables", item, ())
    if kind in SCALARS:
        return Field(name, slot, "scalar", kind, {"bool": False, "f64": 0.0}.get(kind, default))
    if kind == "str":
        return Field(name, slot, "string", kind, "")
    if kind == "blob":
        return Field(name, slot, "blob", kind, (0, 0))
    return Field(name, slot, "union" if kind in unions else "table", kind, None)


PTE = parse("""
Program version:u32 execution_plan:[ExecutionPlan] constant_buffer:[Buffer] backend_delegate_data:[InlineData] \
segments:[DataSegment] constant_segment:Subsegments mutable_data_segments:[Subsegments] named_data:[NamedData]
ExecutionPlan name:str container_meta_type:ContainerMetadata values:[EValue] inputs:[i32] outputs:[i32] \
chains:[Chain] operators:[Operator] delegates:[BackendDelegate] non_const_buffer_sizes:[i64]
ContainerMetadata encoded_inp_str:str encoded_out_str:str
EValue val:KernelTypes
union KernelTypes Null Int Bool Double Tensor String IntList DoubleList BoolList TensorList OptionalTensorList
Null
Int int_val:i64
Bool bool_val:bool
Double double_val:f64
String string_val:str
IntList items:[i64]
DoubleList items:[f64]
BoolList items:[bool]
TensorList items:[i32]
OptionalTensorList items:[i32]
Tensor scalar_type:i8 storage_offset:i32 sizes:[i32] dim_order:[u8] requires_grad:bool data_buffer_idx:u32 \
allocation_info:AllocationDetails layout:i8 shape_dynamism:i8 extra_tensor_info:ExtraTensorInfo
AllocationDetails memory_id:u32 memory_offset_low:u32 memory_offset_high:u32
ExtraTensorInfo mutable_data_segments_idx:u64 fully_qualified_name:str location:i8
Chain inputs:[i32] outputs:[i32] instructions:[Instruction]
Instruction instr_args:InstructionArguments
union InstructionArguments KernelCall DelegateCall MoveCall JumpFalseCall FreeCall
KernelCall op_index:i32 args:[i32]
DelegateCall delegate_index:i32 args:[i32]
MoveCall move_from:i32 move_to:i32
JumpFalseCall cond_value_index:i32 destination_instruction:i32
FreeCall value_index:i32
Operator name:str overload:str
BackendDelegate id:str processed:DataReference compile_specs:[CompileSpec]
DataReference location:i8 index:u32
CompileSpec key:str value:blob
Buffer storage:blob
InlineData data:blob
DataSegment offset:u64 size:u64
Subsegments segment_index:u32 offsets:[u64]
NamedData key:str segment_index:u32
""")

PTD = parse("""
FlatTensor version:u32 segments:[DataSegment] named_data:[NamedData]
DataSegment offset:u64 size:u64
NamedData key:str segment_index:u32 tensor_layout:TensorLayout
TensorLayout scalar_type:i8 sizes:[i32] dim_order:[u8]
""")

VK = parse("""
VkGraph version:str chain:[OperatorCall] values:[VkValue] input_ids:[u32] output_ids:[u32] constants:[VkBytes] \
shaders:[VkBytes] storage_type_override:u8=255 memory_layout_override:u8=255
OperatorCall node_id:u32 name:str args:[i32]
VkValue value:GraphTypes
union GraphTypes Null Int Double Bool VkTensor IntList DoubleList BoolList ValueList String SymInt
Null
Int int_val:i64
Bool bool_val:bool
Double double_val:f64
String string_val:str
IntList items:[i64]
DoubleList items:[f64]
BoolList items:[bool]
ValueList items:[i32]
SymInt value:i32
VkTensor datatype:i8 dims:[u32] constant_id:i32 mem_obj_id:i32 storage_type:u8=255 memory_layout:u8=255 \
staging_datatype:i8=127
VkBytes offset:u64 length:u64 named_key:str
""")
