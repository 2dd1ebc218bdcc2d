// Ops with which tf.compat.v1.train.Saver and sok.Saver save and restore tables. All ranks run them, stage by
// stage: a stage reports its error instead of raising it, all ranks learn of it, and SokRaiseFailures raises
// it.
//
// All of them are stateful: what they do depends on, and changes, the session's tables.
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
    .Input("proceed: bool")
    .Attr("num_tables: int >= 1")
    .Attr("stage: {'begin', 'write', 'publish', 'read'}")
    .Attr("incremental: bool = false")
    .Attr("names: list(string) = []")
    .Output("code: int32")
    .Output("message: string")
    .Output("save_id: int64")
    .Output("references: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      int64_t num_tables;
      TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
      for (int i = 0; i < 3; ++i) c->set_output(i, c->Scalar());
      c->set_output(3, c->Vector(num_tables));
      return ::tensorflow::Status();
    })
    .Doc(
        R"(A stage of writing the tables into the folder <prefix>.sok. Rank 0 begins and publishes, the others read.
id: tells this save from all others; `begin` draws one of its own, and the later stages take that of rank 0.
proceed: whether the stages before succeeded on all ranks. Without, nothing is done but to clean up.
incremental: writes what changed since the last checkpoint, where there is one to add to.
names: what the checkpoint calls each table; none of them where each is called as its variable.
code, message: the error; 0 and empty where there is none.
references: of `publish` on rank 0, and of `read` on the others, what finds each table's checkpoint again.)");

REGISTER_OP("SokEndCheckpoint")
    .Input("handles: num_tables * resource")
    .Input("succeeded: bool")
    .Attr("num_tables: int >= 1")
    .SetIsStateful()
    .SetShapeFn(shape::NoOutputs)
    .Doc(R"(Ends the tables' last save.
succeeded: whether the references were stored where readers will find them.)");

REGISTER_OP("SokCheckCheckpoint")
    .Input("handles: num_tables * resource")
    .Input("prefix: string")
    .Input("references: string")
    .Attr("num_tables: int >= 1")
    .Attr("optimizer_state: bool = true")
    .Output("code: int32")
    .Output("message: string")
    .Output("checked: variant")
    .SetIsStateful()
    .SetShapeFn(ScalarShapes)
    .Doc(R"(Verifies the checkpoints of tables and changes none of them.
references: [num_tables], those that SokCheckpointStage gave.
optimizer_state: whether the optimizers' state and slots, and the tables' counts, are taken too.
code, message: the error; 0 and empty where there is none.
checked: for SokLoadCheckpoint.)");

REGISTER_OP("SokLoadCheckpoint")
    .Input("handles: num_tables * resource")
    .Input("checked: variant")
    .Attr("num_tables: int >= 1")
    .Output("code: int32")
    .Output("message: string")
    .SetIsStateful()
    .SetShapeFn(ScalarShapes)
    .Doc("Makes the tables what SokCheckCheckpoint has verified.");

REGISTER_OP("SokTrackChanges")
    .Input("handles: num_tables * resource")
    .Attr("num_tables: int >= 1")
    .SetIsStateful()
    .SetShapeFn(shape::NoOutputs)
    .Doc("From now on the tables keep what changes since their last checkpoint, for incremental ones.");

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
        R"(A stage of writing <name>_keys.file and <name>_values.file into `directory`. Rank 0 begins and publishes.
row_counts: rows of each rank that are written.
proceed: whether the stages before succeeded on all ranks. Without, nothing is done but to clean up.
code, message: the error; 0 and empty where there is none.)");

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
        R"(A stage of making the table's rows those of the files that SokDumpStage wrote, of which each rank takes
its own. `check` reads the keys and changes nothing. Inputs and outputs as of SokDumpStage.
file_name: stands for <name>; empty is the table's own.)");

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
        R"(`status` is OK, where no stage failed on any rank. Raises this rank's error, or names the ranks that failed.
failures: the number of each rank's stages that failed.
what: what the stages did, for the message.)");

}  // namespace
}  // namespace sok
