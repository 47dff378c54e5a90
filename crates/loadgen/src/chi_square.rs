//! Pearson's chi-square test, for the tests of the distributions.

/// Panics if `counts` do not fit these probabilities (p < 1e−6).
pub(crate) fn assert_fits(counts: &[u64], probabilities: &[f64]) {
    let p = p_value(counts, probabilities);
    assert!(p > 1e-6, "p = {p:e} for {} classes", counts.len());
}

/// The probability of a worse fit by chance, by the Wilson–Hilferty approximation (1931).
/// Neighbouring classes are joined until each has an expected count of at least 10.
pub(crate) fn p_value(counts: &[u64], probabilities: &[f64]) -> f64 {
    assert_eq!(counts.len(), probabilities.len());
    let total = counts.iter().sum::<u64>() as f64;
    let mut classes: Vec<(f64, f64)> = Vec::new();
    let mut open = (0.0, 0.0);
    for (&count, probability) in counts.iter().zip(probabilities) {
        open = (open.0 + count as f64, open.1 + probability * total);
        if open.1 >= 10.0 {
            classes.push(std::mem::take(&mut open));
        }
    }
    match classes.last_mut() {
        Some(last) => *last = (last.0 + open.0, last.1 + open.1),
        None => classes.push(open),
    }
    let freedom = classes.len() as f64 - 1.0;
    if freedom == 0.0 {
        return 1.0;
    }
    let statistic: f64 =
        classes.iter().map(|(seen, expected)| (seen - expected).powi(2) / expected).sum();
    let variance = 2.0 / (9.0 * freedom);
    let z = ((statistic / freedom).cbrt() - (1.0 - variance)) / variance.sqrt();
    upper_tail(z)
}

/// P(Z > z) of the standard normal distribution; Abramowitz & Stegun 26.2.17, error < 7.5e−8
/// (absolute: smaller tails are inaccurate).
fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = t
        * (0.319_381_530
            + t * (-0.356_563_782
                + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let tail = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * series;
    if z < 0.0 { 1.0 - tail } else { tail }
}

#[test]
fn loaded_dice_do_not_fit() {
    let sixth = [1.0 / 6.0; 6];
    assert!(p_value(&[1003, 989, 1011, 1017, 970, 1010], &sixth) > 0.05);
    assert!(p_value(&[1200, 989, 1011, 1017, 773, 1010], &sixth) < 1e-9);
    // Chi-square 11.07 with five degrees of freedom: p = 0.05 (any printed table).
    let counts = [1105, 895, 1000, 1000, 1000, 1000];
    let statistic = 2.0 * 105.0_f64.powi(2) / 1000.0;
    assert!((statistic - 22.05).abs() < 1e-9);
    let p = p_value(&counts, &sixth);
    assert!((4e-4..7e-4).contains(&p), "{p}");
}
