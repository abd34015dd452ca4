"""The plan of a join with split keys: an ordinary join on (keys, slot).

A row of the side that is split goes to one slot of its key, chosen by what no attempt can change, so a
retried task repeats itself: by a hash of its content, or by its mapper where a retry may see other content. A
row of the other side is copied to all slots of its key. Keys that are not split have slot 0 on both sides, so
one exchange per side serves all keys.

A copied side whose unmatched rows come out (`left` for left outer, both for full outer) would give such a row
once per slot. There the join drops the unmatched copies, and the rows of split keys that match nowhere are
found by an anti join on the split keys alone and added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, CalendarIntervalType, DataType, MapType, StructType, VariantType

from skewless.operators import catalyst
from skewless.operators.catalyst import LogicalJoin
from skewless.operators.plan_splits import Split

SLOT = {"left": "__skewless_left_slot", "right": "__skewless_right_slot"}

HOW = {
    "INNER": "inner",
    "LEFT OUTER": "left",
    "RIGHT OUTER": "right",
    "FULL OUTER": "full",
    "LEFT SEMI": "left_semi",
    "LEFT ANTI": "left_anti",
}

PRESERVED = {"LEFT OUTER": ("left",), "RIGHT OUTER": ("right",), "FULL OUTER": ("left", "right")}
"""The sides whose unmatched rows come out, padded with nulls."""


def split_join(
    join: LogicalJoin, splits: Sequence[Split], contents: Mapping[str, Column], partitions: int | None
) -> DataFrame:
    """`join` with those keys split; `contents` deals the rows of a side that some key is split on."""
    sides = {side: _Side(join, side, splits, contents.get(side)) for side in ("left", "right")}
    slotted = {name: side.slotted(partitions) for name, side in sides.items()}
    left, right = slotted["left"], slotted["right"]
    slots = {side: slotted[side][SLOT[side]] for side in slotted}
    joined = left.join(right, join.condition & (slots["left"] == slots["right"]), HOW[join.how])
    copied = next((side for side in PRESERVED.get(join.how, ()) if sides[side].copied), None)
    if copied is None:
        return join.replaced_by(joined.select(*join.output))
    other = "left" if copied == "right" else "right"
    once = joined.where(slots[other].isNotNull() | (slots[copied] == 0)).select(*join.output)
    return join.replaced_by(once.unionAll(_unmatched(join, sides[copied], sides[other])))


_UNHASHED = (MapType, VariantType, CalendarIntervalType)
"""Spark hashes an interval otherwise when interpreted than when compiled."""


def content_hash(df: DataFrame, deal_by: Sequence[str] | None) -> Column | None:
    """A hash of the columns that deal out rows: those named, else all that Spark can hash; None if none."""
    named = zip(catalyst.output_columns(df), df.schema.fields, strict=True)
    columns = [
        column
        for column, field in named
        if (deal_by is None or field.name in deal_by) and not holds(field.dataType, _UNHASHED)
    ]
    return F.xxhash64(*columns) if columns else None


def turn(df: DataFrame, deal_by: Sequence[str] | None) -> Column | None:
    """What deals out the rows of a side; None if there is nothing. Columns that the user names are taken at
    the user's word; of other content every attempt must be sure to see the same, else the mapper decides."""
    if deal_by is not None or catalyst.same_content(df):
        return content_hash(df, deal_by)
    return F.xxhash64(F.spark_partition_id())


class _Side:
    """One side of the join, and what becomes of its rows of split keys."""

    def __init__(self, join: LogicalJoin, side: str, splits: Sequence[Split], content: Column | None) -> None:
        self.name = side
        self.df = join.left if side == "left" else join.right
        self.keys = [pair.left if side == "left" else pair.right for pair in join.keys]
        self.copied = {split.key_hash: split.slots for split in splits if split.side != side}
        self._dealt = {split.key_hash: split.slots for split in splits if split.side == side}
        self._content = content
        self._hash = catalyst.key_hash(self.df.sparkSession, self.keys)
        self._never_match = [
            key.isNull() for key, pair in zip(self.keys, join.keys, strict=True) if not pair.null_safe
        ]

    def slotted(self, partitions: int | None) -> DataFrame:
        """The side with its slot as one more column, a row per copy."""
        slot: Column = F.lit(0)
        if self._dealt:
            slots = self.dealt_slots()
            turn = F.pmod(F.lit(0) if self._content is None else self._content, F.size(slots)).cast("int")
            slot = F.coalesce(F.get(slots, turn), slot)
        if self.copied:
            slot = F.explode(F.coalesce(self.copied_slots(), F.array(slot)))
        df = self.df.select("*", slot.alias(SLOT[self.name]))
        return df if partitions is None else df.repartition(partitions, *self.keys, df[SLOT[self.name]])

    def dealt_slots(self) -> Column:
        return looked_up(self._hash, self._dealt)

    def copied_slots(self) -> Column:
        """All slots of a row's key, null if the row stays single: its key is not split, or matches
        nothing."""
        found = looked_up(self._hash, self.copied)
        return F.when(~reduce(Column.__or__, self._never_match, F.lit(False)), found)


def looked_up(key_hash: Column, slots: Mapping[int, Sequence[int]]) -> Column:
    """The slots of a key hash, null if it has none; the hash set in front keeps cold rows cheap."""
    entries = (f"{key}L, array({', '.join(map(str, values))})" for key, values in slots.items())
    return F.when(key_hash.isin(list(slots)), F.element_at(F.expr(f"map({', '.join(entries)})"), key_hash))


def _unmatched(join: LogicalJoin, copied: _Side, dealt: _Side) -> DataFrame:
    """The copied side's rows of split keys that match nothing. Of the other side only the different values
    count that the condition reads, and they are reduced to those before they travel."""
    needed = dealt.df.where(dealt.dealt_slots().isNotNull()).select(
        *catalyst.columns_in(dealt.df, join.condition)
    )
    if not any(holds(field.dataType, (MapType, VariantType)) for field in needed.schema.fields):
        needed = needed.distinct()
    rows = copied.df.where(copied.copied_slots().isNotNull()).join(needed, join.condition, "left_anti")
    own = catalyst.output_columns(copied.df)
    absent = [F.lit(None).cast(f.dataType).alias(f.name) for f in dealt.df.schema.fields]
    return rows.select(*(own + absent if copied.name == "left" else absent + own))


def holds(data_type: DataType, kinds: tuple[type[DataType], ...]) -> bool:
    """Whether the type, or one within it, is of these kinds."""
    if isinstance(data_type, kinds):
        return True
    if isinstance(data_type, ArrayType):
        return holds(data_type.elementType, kinds)
    return isinstance(data_type, StructType) and any(holds(f.dataType, kinds) for f in data_type.fields)
