package io.skewless.table

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, ObjectInputStream, ObjectOutputStream}

import scala.util.Random

import io.skewless.Refusals.refusal
import io.skewless.table.RandomTables.EdgeHashes
import org.scalatest.funsuite.AnyFunSuite

class TableSuite extends AnyFunSuite {

  /**
   * The inverse of the probe's multiplier modulo 2^32: `home(i) = i * Unscatter` makes hashes that want
   * neighbouring homes.
   */
  private val Unscatter = BigInt(0x9e3779b9L).modInverse(BigInt(1) << 32).toInt

  private def create(moves: Seq[(Int, Int)], splits: Seq[(Int, Seq[Int])], partitions: Int = 4): Table =
    Table.create(
      1,
      partitions,
      moves.map(_._1).toArray,
      moves.map(_._2).toArray,
      splits.map(_._1).toArray,
      splits.scanLeft(0)(_ + _._2.length).toArray,
      splits.flatMap(_._2).toArray,
      splits.map(_._2.length).toArray
    )

  private def refused(says: String)(body: => Any): Unit = {
    val message = refusal("TableError")(body).getMessage
    assert(message.contains(says), message)
  }

  test("a target out of range or negative is refused, in a move and in a split") {
    Seq(4, -1, Int.MinValue, Int.MaxValue).foreach { target =>
      refused(s"target $target is not a partition")(Table(4, Map(7 -> Seq(target))))
      refused(s"target $target is not a partition")(Table(4, Map(7 -> Seq(0, target))))
    }
  }

  test("two entries of one hash are refused: two moves, two splits, a move and a split") {
    refused("key hash 5 has two entries")(create(Seq(5 -> 1, 5 -> 2), Nil))
    refused("key hash 5 has two entries")(create(Nil, Seq(5 -> Seq(0, 1), 5 -> Seq(2, 3))))
    refused("key hash 5 has two entries")(create(Seq(1 -> 0, 5 -> 1, 9 -> 2), Seq(5 -> Seq(0, 1))))
  }

  test("an empty target list is refused") {
    refused("empty target list")(Table(4, Map(5 -> Seq.empty[Int])))
    refused("empty target list")(create(Nil, Seq(5 -> Nil)))
  }

  test("a split that lists one target twice is refused") {
    refused("lists one target twice")(Table(4, Map(5 -> Seq(1, 2, 1))))
  }

  test("rows that do not divide the targets of a split are refused") {
    Seq(0, -1, 2, 4, Int.MaxValue).foreach { rows =>
      refused("would have holes")(Table.of(4, Map(5 -> Split(Seq(0, 1, 2), rows))))
    }
  }

  test("every pair of rows meets in exactly one partition of a grid") {
    for (rows <- 1 to 4; columns <- 1 to 4; grid = Split((0 until rows * columns).reverse, rows)) {
      for (i <- 0 until rows; j <- 0 until columns)
        assert(grid.cells(Left, i).intersect(grid.cells(Right, j)).size == 1)
      assert((0 until rows).flatMap(grid.cells(Left, _)) == grid.targets)
      assert((0 until columns).flatMap(grid.cells(Right, _)).sorted == grid.targets.sorted)
      for (p <- grid.targets; side <- Seq(Left, Right))
        assert(grid.cells(side, grid.choiceAt(side, p)).contains(p))
      assert(grid.choiceAt(Left, 99) == -1)
    }
  }

  test("entries out of order are refused, however they got there") {
    refused("not in order")(create(Seq(5 -> 1, 4 -> 1), Nil))
    refused("not in order")(create(Nil, Seq(5 -> Seq(0, 1), Int.MinValue -> Seq(0, 1))))
  }

  test("a number of partitions that no shuffle has is refused, and a negative epoch") {
    Seq(0, -1, Int.MinValue, Table.MaxPartitions + 1, Int.MaxValue).foreach(n =>
      refused("a shuffle has 1 to")(Table.empty(n))
    )
    refused("is not a count")(Table(4, Map.empty, epoch = -1))
    assert(Table.empty(Table.MaxPartitions).route(-1) == Table.MaxPartitions - 1)
  }

  test("find answers as a map does, on random tables of every size") {
    val random = new Random(11)
    for (size <- Seq(0, 1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 1000, 50000)) {
      val partitions = 1 + random.nextInt(300)
      val entries = RandomTables.entries(random, size, partitions, splitShare = 0.3)
      checkAgainst(
        entries,
        Table(partitions, entries),
        entries.keys ++ EdgeHashes ++ Seq.fill(20000)(random.nextInt())
      )
    }
  }

  test("find answers as a map does when the hashes sit at the ends of the range") {
    EdgeHashes.toSet.subsets().foreach { hashes =>
      val entries =
        hashes.toSeq
          .map(hash =>
            hash -> Seq(Math.floorMod(hash, 5), (Math.floorMod(hash, 5) + 1) % 5).take(1 + (hash & 1))
          )
          .toMap
      checkAgainst(entries, Table(5, entries), EdgeHashes ++ (-20 to 20))
    }
  }

  test("find answers as a map does when every hash wants the same slot") {
    for (size <- Seq(2, 16, 500); stride <- Seq(1, 2)) {
      val colliding = (0 until size).map(_ * stride * Unscatter)
      val entries = colliding.zipWithIndex.map { case (hash, i) => hash -> Seq(i % 7) }.toMap
      assert(entries.size == size)
      checkAgainst(
        entries,
        Table(7, entries),
        colliding ++ (0 until 4 * size).map(_ * Unscatter) ++ EdgeHashes
      )
    }
  }

  test("the last slot runs over into the first") {
    val entries = (1 to 6).map(i => -i * Unscatter -> Seq(i)).toMap
    checkAgainst(entries, Table(7, entries), (-20 to 20).map(_ * Unscatter))
  }

  private def checkAgainst(entries: Map[Int, Seq[Int]], table: Table, hashes: Iterable[Int]): Unit = {
    assert(table.size == entries.size && table.isEmpty == entries.isEmpty)
    assert(table.hasSplits == entries.values.exists(_.length > 1))
    hashes.foreach { hash =>
      val expected = entries.getOrElse(hash, Seq(Math.floorMod(hash, table.partitions)))
      val code = table.find(hash)
      if (!entries.contains(hash)) assert(code == Probe.Absent, hash)
      else if (expected.length == 1) assert(code == expected.head, hash)
      else assert(code <= Probe.SplitBase, hash)
      assert(table.targets(hash).toSeq == expected, hash)
      if (expected.length == 1) assert(table.route(hash) == expected.head, hash)
    }
  }

  test("a split key has no single route") {
    refused("is split over several partitions")(Table(4, Map(5 -> Seq(1, 2))).route(5))
  }

  test("spread sends every row of a split key to one of its targets, each of which is reached") {
    val random = new Random(3)
    val targets = Seq(6, 0, 3, 5)
    val table = Table(8, Map(9 -> targets, 10 -> Seq(1, 2)))
    for ((mappers, byContent) <- Seq((1, true), (3, true), (4, true), (9, true), (9, false), (4, false))) {
      val reached =
        for (mapper <- 0 until mappers; _ <- 0 until 200)
          yield table.spread(table.find(9), 9, mapper, mappers, random.nextInt(), byContent)
      assert(reached.toSet == targets.toSet, s"$mappers mappers, by content: $byContent")
    }
  }

  test("slot lies in range for any input") {
    val random = new Random(5)
    val hashes = EdgeHashes ++ Seq.fill(200)(random.nextInt())
    for (hash <- hashes; width <- Seq(2, 3, 7, 1000, 1 << 24); byContent <- Seq(true, false)) {
      val mappers = 1 + random.nextInt(2000)
      val slot = Table.slot(hash, random.nextInt(mappers), mappers, width, random.nextInt(), byContent)
      assert(slot >= 0 && slot < width)
    }
    assert(Table.slot(-1, Int.MaxValue, Int.MaxValue, 3, 0, byContent = false) >= 0)
  }

  test("with enough mappers slot does not look at the content, nor at the number of mappers") {
    val random = new Random(6)
    for (_ <- 1 to 500) {
      val (hash, width) = (random.nextInt(), 2 + random.nextInt(9))
      val mapper = random.nextInt(50)
      val slots =
        for (mappers <- Seq(width, width + 1, 60, 5000); byContent <- Seq(true, false))
          yield Table.slot(hash, mapper, mappers, width, random.nextInt(), byContent)
      val unallowed = Table.slot(hash, mapper, 1, width, random.nextInt(), byContent = false)
      assert((slots :+ unallowed).distinct.size == 1)
    }
  }

  test(
    "with enough mappers they take turns: any run of neighbours as long as the split meets every target once"
  ) {
    val random = new Random(7)
    for (_ <- 1 to 200) {
      val (hash, width) = (random.nextInt(), 2 + random.nextInt(30))
      val first = random.nextInt(100)
      val slots = (first until first + width).map(Table.slot(hash, _, 200, width, 0, byContent = true))
      assert(slots.sorted == (0 until width))
    }
  }

  test("different keys start their turns at different targets") {
    val firsts =
      (0 until 4000)
        .map(hash => Table.slot(hash, 0, 8, 8, 0, byContent = true))
        .groupBy(identity)
        .view
        .mapValues(_.size)
    assert(firsts.size == 8 && firsts.values.forall(count => count > 350 && count < 650), firsts.toMap)
  }

  test("with fewer mappers content spreads a key evenly, and the same content always goes to the same slot") {
    val random = new Random(8)
    val contents = Seq.fill(16000)(random.nextInt())
    for (mapper <- 0 until 3) {
      val slots = contents.map(Table.slot(77, mapper, 3, 8, _, byContent = true))
      assert(slots == contents.map(Table.slot(77, mapper, 3, 8, _, byContent = true)))
      val counts = slots.groupBy(identity).values.map(_.size)
      assert(counts.size == 8 && counts.forall(count => count > 1700 && count < 2300), counts)
    }
  }

  test("entries come in order of hash and rebuild the table") {
    val random = new Random(9)
    val table = RandomTables.table(random, 300, 16)
    assert(table.entries.map(_._1) == table.entries.map(_._1).sorted)
    assert(
      Table(
        16,
        table.entries.map { case (hash, targets) => hash -> targets.toSeq }.toMap,
        table.epoch
      ) == table
    )
  }

  test("equality covers epoch, partitions, entries and the order of a split's targets") {
    val table = Table(8, Map(1 -> Seq(2), 3 -> Seq(4, 5)), epoch = 6)
    assert(table == Table(8, Map(3 -> Seq(4, 5), 1 -> Seq(2)), epoch = 6))
    assert(table.hashCode == Table(8, Map(3 -> Seq(4, 5), 1 -> Seq(2)), epoch = 6).hashCode)
    val others = Seq(
      table.withEpoch(7),
      Table(9, Map(1 -> Seq(2), 3 -> Seq(4, 5)), epoch = 6),
      Table(8, Map(1 -> Seq(3), 3 -> Seq(4, 5)), epoch = 6),
      Table(8, Map(1 -> Seq(2), 3 -> Seq(5, 4)), epoch = 6),
      Table(8, Map(1 -> Seq(2)), epoch = 6),
      Table.empty(8)
    )
    others.foreach(other => assert(table != other && other != table))
    assert(table.sameRoutes(table.withEpoch(7)) && others.tail.forall(!table.sameRoutes(_)))
    assert(!table.equals("a table"))
  }

  test("a table travels through Java serialization with its probe intact") {
    val table = RandomTables.table(new Random(10), 500, 32)
    table.find(0) // the probe's array exists before and must not travel
    val bytes = new ByteArrayOutputStream
    new ObjectOutputStream(bytes).writeObject(table)
    val copy =
      new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray)).readObject().asInstanceOf[Table]
    assert(copy == table && bytes.size < 500 * 8 * 4)
    checkAgainst(
      table.entries.map { case (hash, targets) => hash -> targets.toSeq }.toMap,
      copy,
      table.entries.map(_._1) ++ EdgeHashes
    )
  }
}
