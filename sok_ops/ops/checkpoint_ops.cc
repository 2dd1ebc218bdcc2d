// Ops with which tf.compat.v1.train.Saver and sok.Saver save and restore tables. All ranks run them in
// stages. A stage outputs its error instead of raising it, so that all ranks learn of it; SokRaiseFailures
// raises it after the last stage.
//
// All ops are stateful: they depend on the session's tables or change them.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

namespace shape = ::tensorflow::shape_inference;
using shape::InferenceContext;

::tensorflow::Status ScalarShapes(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->Scalar());
  return ::tensorflow::Status();
}

REGISTER_OP("SokCheckpointStage")
    .Input("handles: num_tables * resource")
    .Input("prefix: string")
    .Input("id: int64")
    .Input("counted_by: string")
    .Input("proceed: bool")
    .Attr("num_tables: int >= 1")
    .Attr("stage: {'begin', 'write'}")
    .Attr("incremental: bool = false")
    .Attr("apart: bool = false")
    .Attr("names: list(string) = []")
    .Output("code: int32")
    .Output("message: string")
    .Output("save_id: int64")
    .Output("others: string")
    .SetIsStateful()
    .SetShapeFn(ScalarShapes)
    .Doc(
        R"(One stage of saving tables in a checkpoint of TensorFlow. The stages are 'begin' (rank 0 makes the directory)
and 'write' (each rank writes its rows); SokCommitCheckpoint follows on rank 0. All ranks run all stages.
id: the number of this save. 'begin' ignores it and draws a number; 'write' takes rank 0's.
counted_by: 'full' or 'incremental', the kind of Saver whose max_to_keep counts the checkpoint, or ''.
proceed: whether all earlier stages succeeded on all ranks. If not, the stage does nothing.
incremental: whether to write only the changes since the last checkpoint, if there is one to build on.
apart: whether the ranks are servers, which take steps between the moments at which they save.
names: the tables' names in the checkpoint; empty: the names of their variables.
code, message: the error; 0 and empty if there is none.
save_id: the drawn number after 'begin', else `id`.
others: the prefix at which SaveV2 has to write the other variables before SokCommitCheckpoint.)");

REGISTER_OP("SokCommitCheckpoint")
    .Input("prefix: string")
    .Input("id: int64")
    .Attr("ranks: int >= 1")
    .Attr("with_others: bool")
    .Attr("apart: bool = false")
    .SetIsStateful()
    .SetShapeFn(shape::NoOutputs)
    .Doc(R"(Makes one checkpoint of what all ranks have written in SokCheckpointStage.
prefix, id: of the save.
ranks: the number of ranks.
with_others: whether there are other variables, at the prefix `others`.
apart: as in SokCheckpointStage. Otherwise ranks must have taken the same number of steps.)");

REGISTER_OP("SokEndCheckpoint")
    .Input("handles: num_tables * resource")
    .Input("succeeded: bool")
    .Attr("num_tables: int >= 1")
    .SetIsStateful()
    .SetShapeFn(shape::NoOutputs)
    .Doc(R"(Ends the tables' last save.
succeeded: whether the checkpoint was committed.)");

REGISTER_OP("SokCheckCheckpoint")
    .Input("handles: num_tables * resource")
    .Input("prefix: string")
    .Input("optimizers: bool")
    .Input("counts: bool")
    .Input("trained_by: num_told * string")
    .Attr("num_tables: int >= 1")
    .Attr("num_told: int >= 0 = 0")
    .Attr("names: list(string)")
    .Output("code: int32")
    .Output("message: string")
    .Output("checked: variant")
    .SetIsStateful()
    .SetShapeFn(ScalarShapes)
    .Doc(R"(Reads and verifies the tables of a checkpoint, into new tables. Changes no table.
names: the tables' names in the checkpoint.
optimizers: whether to restore the optimizers' state and slots, too.
counts: the same for the tables' counts.
trained_by: the optimizer that trains each table, for checkpoints of other systems, as in
  RestoreParts::trained_by; none for old graphs.
code, message: the error; 0 and empty if there is none.
checked: the input of SokLoadCheckpoint.)");

REGISTER_OP("SokLoadCheckpoint")
    .Input("handles: num_tables * resource")
    .Input("checked: variant")
    .Attr("num_tables: int >= 1")
    .Output("code: int32")
    .Output("message: string")
    .SetIsStateful()
    .SetShapeFn(ScalarShapes)
    .Doc("Replaces tables by those that SokCheckCheckpoint has read. Reads no file.");

REGISTER_OP("SokFollowCheckpoint")
    .Input("handles: num_tables * resource")
    .Input("prefix: string")
    .Input("since: string")
    .Attr("num_tables: int >= 1")
    .Attr("names: list(string)")
    .SetIsStateful()
    .SetShapeFn(shape::NoOutputs)
    .Doc(R"(Brings tables up to date that have the contents of an earlier save of a checkpoint's chain.
Verifies the changes of all tables first. Lookups wait while the rows change, and see all changes or none.
prefix: of the checkpoint.
since: the id of the save that the tables have.
names: the tables' names in the checkpoint.)");

REGISTER_OP("SokTrackChanges")
    .Input("handles: num_tables * resource")
    .Attr("num_tables: int >= 1")
    .SetIsStateful()
    .SetShapeFn(shape::NoOutputs)
    .Doc("Starts to track which rows change after a table's last checkpoint, for incremental checkpoints.");

REGISTER_OP("SokDumpStage")
    .Input("handle: resource")
    .Input("directory: string")
    .Input("row_counts: int64")
    .Input("proceed: bool")
    .Attr("stage: {'begin', 'write', 'publish'}")
    .Output("code: int32")
    .Output("message: string")
    .SetIsStateful()
    .SetShapeFn(ScalarShapes)
    .Doc(
        R"(One stage of writing <name>_keys.file and <name>_values.file in `directory`: 'begin' (rank 0 makes the
files), 'write' (each rank writes its rows) and 'publish' (rank 0 gives the files their final names). All ranks run
all stages.
row_counts: [ranks] the number of rows that each rank writes.
proceed: whether all earlier stages succeeded on all ranks. If not, the stage only cleans up.
code, message: the error; 0 and empty if there is none.)");

REGISTER_OP("SokRestoreStage")
    .Input("handle: resource")
    .Input("directory: string")
    .Input("proceed: bool")
    .Attr("stage: {'check', 'restore'}")
    .Attr("file_name: string = ''")
    .Output("code: int32")
    .Output("message: string")
    .SetIsStateful()
    .SetShapeFn(ScalarShapes)
    .Doc(
        R"(One stage of replacing the table's rows by those in the files that SokDumpStage wrote. Each rank loads
the rows of its own keys. 'check' reads the keys and changes nothing; 'restore' replaces the rows.
proceed: whether all earlier stages succeeded on all ranks. If not, the stage does nothing.
code, message: the error; 0 and empty if there is none.
file_name: the <name> of the files; empty: the table's name.)");

REGISTER_OP("SokRaiseFailures")
    .Input("codes: stages * int32")
    .Input("messages: stages * string")
    .Input("failures: int32")
    .Attr("stages: int >= 1")
    .Attr("what: string")
    .Output("status: string")
    .SetIsStateful()
    .SetShapeFn(shape::ScalarShape)
    .Doc(
        R"(Raises the first error of this rank's stages. If only other ranks failed, raises an error that names
those ranks. If no stage failed on any rank, `status` is 'OK'.
codes, messages: [] of each stage, its outputs on this rank.
failures: [ranks] the number of stages that failed on each rank.
what: what the stages do; begins the message that names other ranks.)");

// The op that merges chains of checkpoints into one, for the command line.

REGISTER_OP("SokCompactCheckpoint")
    .Input("checkpoint: string")
    .Input("prefix: string")
    .Input("id: string")
    .Attr("tables: list(string) = []")
    .Attr("for_serving: bool = false")
    .Output("message: string")
    .SetIsStateful()
    .SetShapeFn(shape::ScalarShape)
    .Doc(
        R"(Makes a full checkpoint of one whose tables build on others, with all rows up to date.
checkpoint: its prefix.
prefix, id: of the new checkpoint; `id` has 16 hex digits.
tables: the tables to write; empty: all of them, and all other variables.
for_serving: whether to write only what lookups need.
message: the engine's error, without TensorFlow's additions; empty if there is none.)");

}  // namespace
}  // namespace sok
