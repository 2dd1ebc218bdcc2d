// The lookup of a group of features, and its gradient.
#include <string>
#include <vector>

#include "sok_ops/ops/group_lookup_signature.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;
using tf::shape_inference::DimensionHandle;
using tf::shape_inference::InferenceContext;
using tf::shape_inference::ShapeHandle;

// The output shape of one lookup: [..., dim] for dense ids [...]; for sparse and ragged ids [bags, dim], or
// [bags / slots, slots, dim] if a sample has `slots` consecutive bags.
tf::Status LookupOutputShape(InferenceContext* c, const std::string& layout, int64_t slots, int64_t dim,
                             ShapeHandle ids, int bag_input, int dense_shape_input, ShapeHandle* output) {
  if (layout == "dense") return c->Concatenate(ids, c->Vector(dim), output);
  DimensionHandle bags = c->UnknownDim();
  if (layout == "ragged") {
    TF_RETURN_IF_ERROR(c->Subtract(c->Dim(c->input(bag_input), 0), 1, &bags));
  } else if (const tf::Tensor* dense_shape = c->input_tensor(dense_shape_input); dense_shape != nullptr) {
    if (dense_shape->dims() == 1 && dense_shape->NumElements() > 0 && dense_shape->vec<int64_t>()(0) >= 0) {
      bags = c->MakeDim(dense_shape->vec<int64_t>()(0));
    }
  }
  if (slots == 0) {
    *output = c->Matrix(bags, dim);
    return tf::Status();
  }
  DimensionHandle samples = c->UnknownDim();
  if (c->ValueKnown(bags) && c->Value(bags) % slots == 0) samples = c->MakeDim(c->Value(bags) / slots);
  *output = c->MakeShape({samples, c->MakeDim(slots), c->MakeDim(dim)});
  return tf::Status();
}

// The shape of lookups that are concatenated along the last dimension. The other dimensions must be equal.
tf::Status SideBySideShape(InferenceContext* c, const std::vector<ShapeHandle>& lookups,
                           ShapeHandle* output) {
  *output = lookups[0];
  for (size_t l = 1; l < lookups.size(); ++l) {
    if (!c->RankKnown(*output) || !c->RankKnown(lookups[l])) {
      *output = c->UnknownShape();
      return tf::Status();
    }
    ShapeHandle before;
    ShapeHandle other;
    DimensionHandle width;
    TF_RETURN_IF_ERROR(c->Subshape(*output, 0, -1, &before));
    TF_RETURN_IF_ERROR(c->Subshape(lookups[l], 0, -1, &other));
    TF_RETURN_IF_ERROR(c->Merge(before, other, &before));
    TF_RETURN_IF_ERROR(c->Add(c->Dim(*output, -1), c->Dim(lookups[l], -1), &width));
    TF_RETURN_IF_ERROR(c->Concatenate(before, c->Vector(width), output));
  }
  return tf::Status();
}

// The shape of each lookup before concatenation.
tf::Status LookupShapes(InferenceContext* c, std::vector<ShapeHandle>* shapes) {
  std::vector<std::string> layouts;
  std::vector<int32_t> table_of;
  std::vector<int64_t> dims;
  std::vector<int64_t> slots;
  std::vector<bool> placed;
  int num_tables;
  int num_bags;
  int num_sparse;
  TF_RETURN_IF_ERROR(c->GetAttr("layouts", &layouts));
  TF_RETURN_IF_ERROR(c->GetAttr("table_of", &table_of));
  TF_RETURN_IF_ERROR(c->GetAttr("dims", &dims));
  TF_RETURN_IF_ERROR(c->GetAttr("slots", &slots));
  TF_RETURN_IF_ERROR(c->GetAttr("placed", &placed));
  TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
  TF_RETURN_IF_ERROR(c->GetAttr("num_bags", &num_bags));
  TF_RETURN_IF_ERROR(c->GetAttr("num_sparse", &num_sparse));
  const int lookups = static_cast<int>(layouts.size());
  const int tables = static_cast<int>(dims.size());
  if (num_tables != tables || table_of.size() != layouts.size() || slots.size() != layouts.size() ||
      c->num_inputs() < num_tables + lookups + num_bags + num_sparse ||
      (!placed.empty() && placed.size() != layouts.size())) {
    return tf::errors::InvalidArgument(
        "SokGroupLookup: the attributes do not fit each other: ", lookups, " layouts, ", table_of.size(),
        " table_of, ", slots.size(), " slots, ", placed.size(), " placed, ", tables, " dims, num_tables ",
        num_tables, ", num_bags ", num_bags, ", num_sparse ", num_sparse, ", ", c->num_inputs(), " inputs");
  }
  int bag_input = tables + lookups;
  const int bags_end = bag_input + num_bags;
  int dense_shape_input = bags_end;
  const int dense_shapes_end = bags_end + num_sparse;
  for (int l = 0; l < lookups; ++l) {
    if (table_of[l] < 0 || table_of[l] >= tables) {
      return tf::errors::InvalidArgument("SokGroupLookup: lookup ", l, " is in table ", table_of[l], " of ",
                                         tables);
    }
    const int bag_inputs = (layouts[l] == "dense" ? 0 : 1) + (!placed.empty() && placed[l] ? 1 : 0);
    const int dense_shapes = layouts[l] == "sparse" ? 1 : 0;
    if (bag_input + bag_inputs > bags_end || dense_shape_input + dense_shapes > dense_shapes_end) {
      return tf::errors::InvalidArgument(
          "SokGroupLookup: too few inputs `bags` or `dense_shapes` for its layouts");
    }
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(LookupOutputShape(c, layouts[l], slots[l], dims[table_of[l]], c->input(tables + l),
                                         bag_input, dense_shape_input, &shape));
    shapes->push_back(shape);
    bag_input += bag_inputs;
    dense_shape_input += dense_shapes;
  }
  return tf::Status();
}

tf::Status GroupLookupShape(InferenceContext* c) {
  std::vector<ShapeHandle> lookups;
  TF_RETURN_IF_ERROR(LookupShapes(c, &lookups));
  std::vector<int64_t> beside;
  int num_outputs;
  TF_RETURN_IF_ERROR(c->GetAttr("beside", &beside));
  TF_RETURN_IF_ERROR(c->GetAttr("num_outputs", &num_outputs));
  if (beside.empty()) beside.assign(lookups.size(), 1);
  size_t next = 0;
  for (size_t o = 0; o < beside.size() && static_cast<int>(o) < num_outputs; ++o) {
    if (beside[o] < 1 || beside[o] > static_cast<int64_t>(lookups.size() - next)) break;
    ShapeHandle output;
    TF_RETURN_IF_ERROR(
        SideBySideShape(c, {lookups.begin() + next, lookups.begin() + next + beside[o]}, &output));
    c->set_output(static_cast<int>(o), output);
    next += beside[o];
  }
  if (next != lookups.size() || static_cast<int>(beside.size()) != num_outputs) {
    return tf::errors::InvalidArgument("SokGroupLookup: `beside` does not divide ", lookups.size(),
                                       " lookups into ", num_outputs, " outputs of at least one lookup");
  }
  c->set_output(num_outputs, c->Scalar());
  return tf::Status();
}

REGISTER_OP("SokGroupLookup")
SOK_GROUP_LOOKUP_SIGNATURE.Output("outputs: num_outputs * float")
    .Output("plan: variant")
    .SetIsStateful()
    .SetShapeFn(GroupLookupShape)
    .Doc(R"(Looks up a group of features: all their ids, in all their tables, in one op.
handles: the tables, each once. dims: their row lengths.
ids: the ids of each lookup. table_of: the position of each lookup's table in `handles`.
layouts: how a lookup's ids form bags. 'sparse': the values of a SparseTensor; its indices [ids, 2] are in `bags`, and
  its dense_shape [2] in `dense_shapes`. The first column of the indices is the bag, in any order. 'ragged': the values of a
  RaggedTensor; its row_splits are in `bags`. 'dense': no bags, one output row for each id.
combiners: how the rows of a bag are combined; 'none' if and only if the layout is 'dense'.
weighted: whether a lookup's ids have weights, which are then in `weights`.
slots: how many consecutive bags belong to one sample; 0: bags are not grouped by sample.
beside: how many consecutive lookups each output holds, concatenated along the last dimension; empty: one lookup
  per output.
positive_weights_only: whether a lookup ignores ids whose weight is not above zero; empty: no lookup does.
placed: whether the indices or row_splits of a lookup's weights are in `bags`, after those of its ids. The two must be
  equal. Empty: for no lookup.
training: whether ids without a row get one. If not, they read as their initial values and are not inserted.
outputs: the shape of one lookup is [..., dim] if 'dense', else [bags, dim] or [bags / slots, slots, dim].
plan: an input of the gradient.)");

REGISTER_OP("SokGroupLookupGrad")
    .Attr("num_tables: int >= 1")
    .Attr("num_outputs: int >= 1")
    .Attr("num_weights: int >= 0")
    .Attr("dims: list(int) >= 1")
    .Attr("weighted: list(bool) >= 1")
    .Input("handles: num_tables * resource")
    .Input("plan: variant")
    .Input("gradients: num_outputs * float")
    .Output("indices: num_tables * int64")
    .Output("values: num_tables * float")
    .Output("weight_gradients: num_weights * float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      std::vector<int64_t> dims;
      int num_tables;
      int num_weights;
      TF_RETURN_IF_ERROR(c->GetAttr("dims", &dims));
      TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
      TF_RETURN_IF_ERROR(c->GetAttr("num_weights", &num_weights));
      if (static_cast<int>(dims.size()) != num_tables) {
        return tf::errors::InvalidArgument("SokGroupLookupGrad: ", dims.size(), " dims for ", num_tables,
                                           " tables");
      }
      for (int t = 0; t < num_tables; ++t) {
        DimensionHandle rows = c->UnknownDim();
        c->set_output(t, c->Vector(rows));
        c->set_output(num_tables + t, c->Matrix(rows, dims[t]));
      }
      for (int w = 0; w < num_weights; ++w) {
        c->set_output(2 * num_tables + w, c->Vector(InferenceContext::kUnknownDim));
      }
      return tf::Status();
    })
    .Doc(
        R"(The gradient of SokGroupLookup.
indices, values: for each table, references (cc/table/record_layout.h) to the distinct rows that the lookups read,
  and the gradients of these rows; empty if the lookup was not training.
weight_gradients: the gradient of each weighted lookup's weights.)");

REGISTER_OP("SokTrainedRows")
    .Attr("table: int >= 0")
    .Input("lookup: variant")
    .Output("rows: int64")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ScalarShape)
    .Doc(R"(How many rows of a table a lookup trains on this rank.
lookup: the output `plan` of SokGroupLookup, or `served` of SokGroupServe.
table: the table's position in the group.)");

REGISTER_OP("SokGroupLookupApplyGradients")
    .Attr("num_tables: int >= 1")
    .Attr("num_outputs: int >= 1")
    .Attr("num_trained: int >= 1")
    .Attr("dims: list(int) >= 1")
    .Attr("trained: list(int) >= 1")
    .Attr("optimizer: string")
    .Input("handles: num_tables * resource")
    .Input("plan: variant")
    .Input("gradients: num_outputs * float")
    .Input("hyper: num_trained * float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      int num_tables;
      int num_outputs;
      TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
      TF_RETURN_IF_ERROR(c->GetAttr("num_outputs", &num_outputs));
      ShapeHandle unused;
      for (int i = num_tables + 1 + num_outputs; i < c->num_inputs(); ++i) {
        TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 1, &unused));
      }
      return tf::Status();
    })
    .Doc(
        R"(SokGroupLookupGrad and a SokApplyGradients of each trained table in one op: the same result, bit for
bit, without arrays of row gradients in memory.
trained: the positions of the tables that take a step, each once.
hyper: the optimizer's hyper-parameters for each trained table, in the order of cc/optimizers.)");

REGISTER_OP("SokApplyGradients")
    .Input("handle: resource")
    .Input("indices: int64")
    .Input("values: float")
    .Input("hyper: float")
    .Attr("optimizer: string")
    .Attr("indices_unique: bool = false")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &unused));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 2, &unused));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 1, &unused));
      return tf::Status();
    })
    .Doc(R"(One step of a table's optimizer. values[i, :] is the gradient of the row of reference indices[i].
The gradients of one row are summed first. A step without rows counts as a step.
hyper: the optimizer's hyper-parameters, in the order of cc/optimizers.
indices_unique: whether the caller knows that no row occurs twice in `indices`.)");

}  // namespace
}  // namespace sok
