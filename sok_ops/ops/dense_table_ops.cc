// The ops of ordinary variables whose rows are looked up by ids.
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

using ::tensorflow::Status;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("SokMergeIds")
    .Input("ids: inputs * int64")
    .Output("distinct: units * int64")
    .Output("places: units * int32")
    .Output("finding: int64")
    .Attr("inputs: int >= 1")
    .Attr("units: int >= 1")
    .Attr("unit_of: list(int)")
    .Attr("bases: list(int)")
    .Attr("features: list(int)")
    .Attr("sizes: list(int)")
    .SetShapeFn([](InferenceContext* c) {
      const int units = (c->num_outputs() - 1) / 2;
      for (int i = 0; i < 2 * units; ++i) c->set_output(i, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(2 * units, c->Vector(3));
      return Status();
    })
    .Doc(R"(Merges the ids of inputs into the distinct keys of units (cc/cpu/dense_tables).
ids: of any shapes. Id i of an input belongs to its feature i % (features of the input), and must be in
  [0, size of the feature).
distinct: the keys of each unit, in order of first occurrence.
places: for all ids of a unit's inputs, one input after the other, where their key is in `distinct`.
finding: [0, 0, 0]; or [1, i, id] if input i is the first with an id out of range, and `id` is its id farthest out.
unit_of: of each input.
bases: the key of each input's id 0. The keys of a feature follow those of the features before it.
features: of each input, how many it has.
sizes: of all features of all inputs.)");

Status CombinedShapes(InferenceContext* c) {
  std::vector<int64_t> unit_of;
  TF_RETURN_IF_ERROR(c->GetAttr("unit_of", &unit_of));
  int units = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("units", &units));
  for (int i = 0; i < c->num_outputs(); ++i) {
    ShapeHandle rows = c->UnknownShapeOfRank(2);
    const bool fits = i < static_cast<int>(unit_of.size()) && unit_of[i] >= 0 && unit_of[i] < units;
    if (fits) TF_RETURN_IF_ERROR(c->WithRank(c->input(static_cast<int>(unit_of[i])), 2, &rows));
    c->set_output(i, c->Matrix(c->UnknownDim(), fits ? c->Dim(rows, 1) : c->UnknownDim()));
  }
  return Status();
}

REGISTER_OP("SokCombineRows")
    .Input("rows: units * float")
    .Input("places: units * int32")
    .Input("bags: inputs * int64")
    .Output("outputs: inputs * float")
    .Attr("units: int >= 1")
    .Attr("inputs: int >= 1")
    .Attr("unit_of: list(int)")
    .Attr("combiners: list({'none', 'sum', 'mean'})")
    .Attr("kinds: list({'fixed', 'splits', 'numbers'})")
    .SetShapeFn(CombinedShapes)
    .Doc(R"(Makes the outputs of inputs from the rows of their ids (cc/cpu/dense_tables).
rows: of each unit, [u, d].
places: the row of each id of a unit's inputs, one input after the other.
bags: of each input, the ids that are combined: by kind, the shape [..., ids per bag]; row splits; or the
  number of bags and then the bag of each id, rising.
outputs: [bags, d], or [ids, d] without a combiner.
unit_of: of each input.
combiners: of each unit.
kinds: of each input's bags.)");

REGISTER_OP("SokCombineRowsGrad")
    .Input("rows: units * float")
    .Input("places: units * int32")
    .Input("bags: inputs * int64")
    .Input("gradients: inputs * float")
    .Output("of_rows: units * float")
    .Attr("units: int >= 1")
    .Attr("inputs: int >= 1")
    .Attr("unit_of: list(int)")
    .Attr("combiners: list({'none', 'sum', 'mean'})")
    .Attr("kinds: list({'fixed', 'splits', 'numbers'})")
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i));
      return Status();
    })
    .Doc(R"(The gradients of the rows of SokCombineRows, from those of its outputs.
rows, places, bags, unit_of, combiners, kinds: of SokCombineRows; of the rows, only their shapes are read.
gradients: of its outputs.
of_rows: of its rows.)");

REGISTER_OP("SokTrainRows")
    .Input("variable: resource")
    .Input("slots: num_slots * resource")
    .Input("hyper: float")
    .Input("rows: int64")
    .Input("gradients: float")
    .Attr("num_slots: int >= 0")
    .Attr("optimizer: string")
    .Attr("variable_name: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext*) { return Status(); })
    .Doc(R"(Takes one step of an optimizer on some rows of a variable and of its slots (cc/cpu/dense_tables).
variable: a float variable [n, dim].
slots: float variables [n, dim], the slots of the optimizer's rule in its order.
hyper: the rule's hyper-parameters in its order.
rows: [m], numbers of rows, in [0, n). The gradients of a row that occurs several times are added up first.
gradients: [m, dim].
optimizer: the name of a rule of cc/optimizers that changes rows with a gradient only.
variable_name: for messages.)");

}  // namespace
}  // namespace sok
