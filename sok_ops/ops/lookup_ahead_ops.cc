// A group lookup in two ops, the first of which a step may run ahead of, and what holds a batch until then.
#include <vector>

#include "sok_ops/ops/group_lookup_signature.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;
using tf::shape_inference::InferenceContext;
using tf::shape_inference::ShapeHandle;

REGISTER_OP("SokGroupLookupAhead")
SOK_GROUP_LOOKUP_SIGNATURE.Output("ahead: variant")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return tf::Status();
    })
    .Doc(R"(The part of a SokGroupLookup that needs no row: checks the ids and merges duplicates. Inputs and
attributes are those of SokGroupLookup. The tables are not read, so that steps may change them until the rest
of the lookup runs.
ahead: what SokGroupLookupRead needs. An error of the ids is in it, and is that op's.)");

REGISTER_OP("SokGroupLookupRead")
    .Attr("num_tables: int >= 1")
    .Attr("num_outputs: int >= 1")
    .Attr("num_lookups: int >= 1")
    .Attr("dims: list(int) >= 1")
    .Input("handles: num_tables * resource")
    .Input("ahead: variant")
    .Output("outputs: num_outputs * float")
    .Output("plan: variant")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 0; i + 1 < c->num_outputs(); ++i) c->set_output(i, c->UnknownShape());
      c->set_output(c->num_outputs() - 1, c->Scalar());
      return tf::Status();
    })
    .Doc(R"(The rest of a SokGroupLookup: finds or inserts rows, and writes the outputs.
handles: the tables of the SokGroupLookupAhead, in its order. ahead: what it left, which is read once.
outputs, plan: as of SokGroupLookup.)");

REGISTER_OP("SokHoldBatch")
    .Attr("T: list(type) >= 1")
    .Attr("name_of_batch: string")
    .Input("values: T")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext*) { return tf::Status(); })
    .Doc(R"(Holds tensors for the SokTakeBatch of the same name, in a later run of the session. It holds one
batch at a time.)");

REGISTER_OP("SokTakeBatch")
    .Attr("T: list(type) >= 1")
    .Attr("name_of_batch: string")
    .Input("has_next: bool")
    .Output("values: T")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->UnknownShape());
      return tf::Status();
    })
    .Doc(
        R"(Gives what SokHoldBatch holds, and holds it no longer. Where that is nothing: OutOfRange if there is
no next batch either, else FailedPrecondition.)");

}  // namespace
}  // namespace sok
