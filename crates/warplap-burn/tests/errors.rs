//! What is wrong is named, with the remedy, before any kernel runs; the forms that panic say the same. About 1 s.

mod common;

use std::panic::catch_unwind;

use burn::tensor::{Bool, Device, FloatDType, Tensor, TensorData};
use common::{drawn, mask, without_races};
use warplap_burn::warplap::{DType, NormProblem};
use warplap_burn::{
    Activation, AttentionOptions, BsrTensor, Error, NormOptions, Slotted, SparseLinearConfig, run, try_attention,
    try_linear, try_matmul, try_norm, try_norm_residual,
};

fn says<T>(outcome: Result<T, Error>, words: &[&str]) {
    let Err(error) = outcome.map(drop) else { panic!("no error, expected {words:?}") };
    let error = error.to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error}: expected {words:?}");
    assert!(!error.contains('\n'), "{error}");
}

fn flex<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    without_races();
    drawn(shape, 1, &Device::flex())
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    says(try_matmul(flex([4, 8]), flex([9, 4])), &["'b'", "9 rows", "expected 8"]);
    says(try_matmul(flex([3, 4, 8]), flex([2, 8, 4])), &["'b'", "dimension 0", "expected 3 or 1"]);
    says(try_linear(flex([4, 8]), flex([9, 4]), None, Activation::None), &["'x'", "8 columns", "expected 9"]);
    let bias = Some(flex([5]));
    says(try_linear(flex([4, 8]), flex([8, 4]), bias, Activation::None), &["'bias'", "5 elements", "expected 4"]);
    let heads = |h: usize| flex([1, h, 6, 8]);
    says(try_attention(heads(4), heads(3), heads(3), AttentionOptions::default()), &["'k'", "divisor of the 4"]);
    says(try_attention(heads(4), heads(4), heads(2), AttentionOptions::default()), &["'v'", "4 heads"]);
    let options = AttentionOptions { mask: Some(flex([6, 7])), ..AttentionOptions::default() };
    says(try_attention(heads(2), heads(2), heads(2), options), &["'mask'", "expected [6, 6]"]);
    let options = NormOptions { weight: Some(flex([7])), ..NormOptions::default() };
    says(try_norm(flex([4, 8]), options), &["'weight'", "7 elements", "expected 8"]);
    says(try_norm_residual(flex([4, 8]), flex([8, 4]), NormOptions::default()), &["'residual'", "expected [4, 8]"]);
    says(try_norm(flex([4, 8]), NormOptions { eps: 0.0, ..NormOptions::default() }), &["'eps'", "1e-20"]);
}

#[test]
fn types_that_no_kernel_takes_and_mixed_ones_are_named() {
    let wide = |t: Tensor<2>| t.cast(FloatDType::F64);
    says(try_matmul(wide(flex([4, 8])), wide(flex([8, 4]))), &["'a'", "F64", "cast"]);
    let half = |t: Tensor<2>| t.cast(FloatDType::F16);
    says(try_matmul(flex([4, 8]), half(flex([8, 4]))), &["'b'", "f16", "expected f32", "cast"]);
    let quarter = |t: Tensor<4>| t.cast(FloatDType::BF16);
    let q = || flex([1, 1, 4, 8]);
    says(try_attention(q(), quarter(q()), q(), AttentionOptions::default()), &["'k'", "bf16", "expected f32"]);
}

#[test]
fn blocks_that_do_not_divide_and_damaged_parts_are_named() {
    without_races();
    let device = Device::flex();
    let dense = || flex([64, 96]);
    says(BsrTensor::try_from_dense(dense(), mask([2, 3], 2, 1, &device), 40), &["'block'", "40", "divides both"]);
    says(BsrTensor::try_from_dense(dense(), mask([2, 2], 2, 1, &device), 32), &["'mask'", "expected [2, 3]"]);
    let none = Tensor::<2, Bool>::from_data(TensorData::new(vec![false; 6], [2, 3]), &device);
    says(BsrTensor::try_from_dense(dense(), none, 32), &["'mask'", "no block"]);
    says(BsrTensor::try_from_dense(flex([12, 12]), mask([3, 3], 2, 1, &device), 4), &["bs", "multiple of 8"]);
    let parts = |rows: Vec<i32>, columns: Vec<i32>| BsrTensor::from_parts([64, 96], rows, columns, flex([2, 32, 32]));
    assert!(parts(vec![0, 1, 2], vec![0, 2]).is_ok());
    says(parts(vec![0, 1, 2], vec![0, 3]), &["col_idx[1]", "expected 0 to 2"]);
    says(parts(vec![0, 2], vec![0, 2]), &["row_ptr"]);
    says(parts(vec![0, 2, 2], vec![2, 0]), &["col_idx[1]", "expected"]);
    says(parts(vec![0, 1, 3], vec![0, 1, 2]), &["'values'", "2 blocks", "expected 3"]);
    let layer = || SparseLinearConfig::new(96, 64);
    says(layer().with_block(40).try_init(&device), &["'d_output'", "block=40"]);
    says(layer().with_density(0.0).try_init(&device), &["'density'", "above 0"]);
    says(layer().init(&device).try_forward(flex([4, 64])), &["'x'", "64 columns", "expected 96"]);
    says(BsrTensor::from_dense(dense(), mask([2, 3], 2, 1, &device), 32).try_matmul(flex([64, 4])), &["'dense'"]);
}

#[test]
fn any_operation_holds_tensors_to_its_slots() {
    let problem = NormProblem::new(4, 64, DType::F32);
    let tensor_list = || vec![flex([4, 64]).into(), Slotted::Absent, flex([64]).into()];
    assert_eq!(run(&problem, tensor_list()).unwrap().len(), 1);
    says(run(&problem, vec![flex([4, 63]).into()]), &["'x'", "expected [4, 64]"]);
    says(run(&problem, vec![flex([4, 64]).into()]), &["'weight'", "missing"]);
    let half = flex([4, 64]).cast(FloatDType::F16);
    says(run(&problem, vec![half.into()]), &["'x'", "f16", "expected f32"]);
    says(run(&problem, vec![]), &["there is no tensor"]);
}

#[test]
fn a_problem_beyond_the_limits_of_its_operation_is_refused_by_its_field() {
    let wide = || flex([1, 1, 2, 2048]);
    says(try_attention(wide(), wide(), wide(), AttentionOptions::default()), &["'d'", "1024"]);
}

#[test]
fn the_forms_that_panic_say_the_same() {
    without_races();
    let panicked = catch_unwind(|| warplap_burn::matmul(flex([4, 8]), flex([9, 4]))).expect_err("a panic");
    let words = panicked.downcast_ref::<String>().expect("words");
    assert!(words.contains("matmul") && words.contains("'b'") && words.contains("expected 8"), "{words}");
}
